"""The older mixed-precision APIs and what they wrote, over the core; loads no keras by itself."""
