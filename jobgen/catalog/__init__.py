"""Facts: model architectures, GPUs, node types, links, fabrics and framework releases, each with its source."""
