"""Vendors' management libraries through ctypes, where they are installed.

Only what was read in a public header is called; a call that fails leaves its figure unknown. None of it was run on
hardware.
"""
