"""Jobs over events: functions of DataFrames that read and write no files."""
