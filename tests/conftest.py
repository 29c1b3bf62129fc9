"""Settings of all tests."""

import os

# Before torch is imported. Results with another number of threads differ in the last bits, and some tests compare this
# process with processes of one thread. `make evidence` sets the number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
