"""The pure queue core: no I/O, no clock, no asyncio, no protocol. It is synchronous and single-threaded."""
