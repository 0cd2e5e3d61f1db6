"""Jobs over events: functions of DataFrames, which read and write nothing themselves."""
