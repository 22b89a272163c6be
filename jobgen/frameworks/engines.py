"""The engines under a Hugging Face style program: who tells DeepSpeed, FSDP and accelerate what to do.

Under ``accelerate launch`` its file says everything. Under another launcher a transformers Trainer takes ``deepspeed``
or ``fsdp`` arguments, and a plain Accelerator reads the variables that the launcher would have set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobgen.frameworks import accelerate_file, deepspeed_file, formats
from jobgen.frameworks.table import Text
from jobgen.frameworks.view import View
from jobgen.frameworks.write import Configured, in_config_dir

DEEPSPEED_FILE = "deepspeed.json"
ACCELERATE_FILE = "accelerate.yaml"


def configure(view: View, *, hf: bool, base: Mapping[str, Any] | None = None) -> Configured:
    """Files and launcher arguments of the engine. ``hf``: a Trainer fills the JSON's ``auto`` values.
    ``base``: the user's own DeepSpeed settings, under ours."""
    files: list[tuple[str, str]] = []
    launcher_args: list[Text] = []
    if view.launcher == "accelerate":
        files.append((ACCELERATE_FILE, formats.yaml(accelerate_file.content(view))))
        launcher_args += [("--config_file",), in_config_dir(ACCELERATE_FILE)]
    if view.engine == "deepspeed":
        files.append((DEEPSPEED_FILE, formats.as_json(deepspeed_file.content(view, hf=hf, base=base))))
        if view.launcher == "accelerate":
            launcher_args += [("--deepspeed_config_file",), in_config_dir(DEEPSPEED_FILE)]
    return Configured(files=tuple(files), launcher_args=tuple(launcher_args))
