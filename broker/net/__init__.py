"""The asyncio edge: listeners, transports, timers, the pump."""
