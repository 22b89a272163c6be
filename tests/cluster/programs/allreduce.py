"""Says who it is and what all ranks together sum up to (gloo, no GPU)."""

import json
import socket
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
said = {"rank": dist.get_rank(), "world": dist.get_world_size(), "host": socket.gethostname(), "sum": total.item(), "argv": sys.argv[1:]}
print("RESULT " + json.dumps(said), flush=True)
dist.barrier()
dist.destroy_process_group()
