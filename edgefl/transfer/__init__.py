"""Chunked, resumable, receipted transfers of large byte strings: pure logic, used by both ends."""
