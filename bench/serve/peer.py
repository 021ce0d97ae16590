"""llama.cpp's own HTTP server out of the `xllamacpp` wheel, in a process of its own.

Arguments: model file, port, threads, slots, context length of a slot. Prints a line when it serves, and
ends when its standard input does.
"""

import sys

import xllamacpp

model, port, threads, slots, length = sys.argv[1], *map(int, sys.argv[2:6])
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_parallel = slots
params.n_ctx = slots * length
params.kv_unified = False
params.cpuparams.n_threads = threads
params.cpuparams_batch.n_threads = threads
params.n_gpu_layers = 0
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
