"""Training with TFLite files: their format, the compiler that makes them and the runtime."""
