"""Reads and writes TFLite files with numpy alone; knows no interpreter."""
