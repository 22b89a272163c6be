"""Families of the common decoder: one entry each. Shapes read from transformers 5.24.0 and 4.57.6 modelling files."""

from __future__ import annotations

from jobgen.catalog.families.transformer import Moe, Traits

SIGMOID = Moe(
    ("n_routed_experts", "num_experts", "num_local_experts"), layers="first", shared=("n_shared_experts",),
    router_linear=False, router_float32=True, correction="buffer",
)  # fmt: skip
"""DeepSeek-V3's mixture as others took it over: sigmoid scores with a correction bias, router in fp32."""

TABLE: dict[str, Traits] = {
    "llama": Traits(mlp_bias="mlp_bias", layer_class="LlamaDecoderLayer"),
    "mistral": Traits("", "", sliding="all", layer_class="MistralDecoderLayer"),
    "ministral": Traits("", "", sliding="all", layer_class="MinistralDecoderLayer"),
    "ministral3": Traits("", "", sliding="all", layer_class="Ministral3DecoderLayer"),
    "mixtral": Traits(
        "", "", sliding="all", layer_class="MixtralDecoderLayer", moe_class="MixtralSparseMoeBlock",
        moe=Moe(("num_local_experts",), ffn=("intermediate_size",), layers="all", linear_before=("w1", "w3", "w2")),
    ),
    "qwen2": Traits("+", "", sliding="after", layer_class="Qwen2DecoderLayer"),
    "qwen2_moe": Traits(
        "qkv_bias", "", sliding="after", layer_class="Qwen2MoeDecoderLayer", moe_class="Qwen2MoeSparseMoeBlock",
        moe=Moe(shared_ffn="shared_expert_intermediate_size", shared_gate=True, adapters=False),
    ),
    "qwen3": Traits(qk_norm="head", sliding="after", layer_class="Qwen3DecoderLayer"),
    "qwen3_moe": Traits(
        qk_norm="head", sliding="all", layer_class="Qwen3MoeDecoderLayer", moe_class="Qwen3MoeSparseMoeBlock",
        moe=Moe(),
    ),
    "gemma": Traits(layer_class="GemmaDecoderLayer"),
    "gemma2": Traits(norms=4, sliding="alternate", layer_class="Gemma2DecoderLayer"),
    "gemma3_text": Traits(norms=4, qk_norm="head", sliding="6", layer_class="Gemma3DecoderLayer"),
    "phi": Traits(
        "+", "+", "+", "+", ("q_proj", "k_proj", "v_proj", "dense"), ("fc1", "fc2"), norm="layer", norms=1,
        qk_norm="head_layer", qk_norm_flag="qk_layernorm", layer_class="PhiDecoderLayer",
    ),
    "phi3": Traits(
        "", "", attention=("qkv_proj", "o_proj"), mlp=("gate_up_proj", "down_proj"), fused_gate=True, sliding="all",
        layer_class="Phi3DecoderLayer",
    ),
    "phimoe": Traits(
        norm="layer", head_bias="lm_head_bias", sliding="all", layer_class="PhimoeDecoderLayer",
        moe_class="PhimoeSparseMoeBlock",
        moe=Moe(
            ("num_local_experts",), ffn=("intermediate_size",), layers="all", router="router", adapters=False,
            router_always_linear=True, router_subclass=True, linear_before=("w1", "w3", "w2"),
        ),
    ),
    "glm": Traits(
        "attention_bias", "", mlp=("gate_up_proj", "down_proj"), fused_gate=True, layer_class="GlmDecoderLayer"
    ),
    "glm4": Traits(
        "attention_bias", "", mlp=("gate_up_proj", "down_proj"), fused_gate=True, norms=4,
        layer_class="Glm4DecoderLayer",
    ),
    "glm4_moe": Traits(
        "attention_bias", "", qk_norm="head", qk_norm_flag="use_qk_norm", moe=SIGMOID,
        layer_class="Glm4MoeDecoderLayer", moe_class="Glm4MoeMoE",
    ),
    "dots1": Traits(
        qk_norm="head", sliding="after", moe=SIGMOID, layer_class="Dots1DecoderLayer", moe_class="Dots1MoE"
    ),
    "olmo": Traits(norm="none", layer_class="OlmoDecoderLayer"),
    "olmo2": Traits(qk_norm="full", layer_class="Olmo2DecoderLayer"),
    "olmo3": Traits(qk_norm="full", sliding="4", layer_class="Olmo3DecoderLayer"),
    "olmoe": Traits(
        qk_norm="full", layer_class="OlmoeDecoderLayer", moe_class="OlmoeSparseMoeBlock",
        moe=Moe(ffn=("intermediate_size",), layers="all"),
    ),
    "smollm3": Traits(mlp_bias="mlp_bias", layer_class="SmolLM3DecoderLayer"),
    "granite": Traits(mlp_bias="mlp_bias", layer_class="GraniteDecoderLayer"),
    "cohere": Traits(
        norm="layer_nobias", norms=1, qk_norm="full", qk_norm_flag="use_qk_norm", layer_class="CohereDecoderLayer"
    ),
    "cohere2": Traits(norm="layer_nobias", norms=1, sliding="4", layer_class="Cohere2DecoderLayer"),
    "nemotron": Traits(
        mlp_bias="mlp_bias", mlp=("up_proj", "down_proj"), norm="layer", layer_class="NemotronDecoderLayer"
    ),
    "starcoder2": Traits(
        "use_bias", "use_bias", "use_bias", mlp=("c_fc", "c_proj"), norm="layer", sliding="all",
        layer_class="Starcoder2DecoderLayer",
    ),
    "stablelm": Traits(
        "use_qkv_bias", "", norm="layer", one_norm_flag="use_parallel_residual", qk_norm="full",
        qk_norm_flag="qk_layernorm", layer_class="StableLmDecoderLayer",
    ),
    "seed_oss": Traits(
        "attention_bias", "attention_out_bias", mlp_bias="mlp_bias", layer_class="SeedOssDecoderLayer"
    ),
    "hunyuan_v1_dense": Traits(qk_norm="head", layer_class="HunYuanDenseV1DecoderLayer"),
    "hunyuan_v1_moe": Traits(
        qk_norm="head", layer_class="HunYuanMoEV1DecoderLayer", moe_class="HunYuanMoEV1Moe",
        moe=Moe(
            ("num_experts",), ("moe_topk", "num_experts_per_tok"), ("intermediate_size",), "all",
            shared=("num_shared_expert",), shared_default=1, router="wg", router_always_linear=True, router_float32=True,
        ),
    ),
    "ernie4_5": Traits(
        "use_bias", "use_bias", "use_bias", "use_bias", layer_class="Ernie4_5DecoderLayer"
    ),
    "ernie4_5_moe": Traits(
        "use_bias", "use_bias", "use_bias", "use_bias", layer_class="Ernie4_5_MoeDecoderLayer",
        moe_class="Ernie4_5_MoeSparseMoeBlock",
        moe=Moe(
            ("moe_num_experts", "num_experts"), ("moe_k", "num_experts_per_tok"), layers="range",
            shared=("moe_num_shared_experts",), router_float32=True, correction="parameter",
        ),
    ),
    "exaone4": Traits("", "", qk_norm="head", sliding="4", layer_class="Exaone4DecoderLayer"),
    "apertus": Traits(qk_norm="head", mlp=("up_proj", "down_proj"), layer_class="ApertusDecoderLayer"),
    "minimax_m2": Traits(
        "",
        "",
        qk_norm="full",
        layer_class="MiniMaxM2DecoderLayer",
        moe_class="MiniMaxM2SparseMoeBlock",
        moe=Moe(
            ("num_local_experts",),
            ffn=("intermediate_size",),
            layers="all",
            correction="buffer",
            linear_before=("w1", "w3", "w2"),
        ),
    ),
    "granitemoe": Traits(
        layer_class="GraniteMoeDecoderLayer",
        moe_class="GraniteMoeMoE",
        moe=Moe(
            ("num_local_experts",),
            ffn=("intermediate_size",),
            layers="all",
            router="router",
            linear_before=None,
            adapters=False,
        ),
    ),
    "arcee": Traits(mlp_bias="mlp_bias", mlp=("up_proj", "down_proj"), layer_class="ArceeDecoderLayer"),
    "qwen2_vl_text": Traits("+", "", sliding="after", layer_class="Qwen2VLDecoderLayer"),
    "qwen2_5_vl_text": Traits("+", "", sliding="after", layer_class="Qwen2_5_VLDecoderLayer"),
    "qwen3_vl_text": Traits(qk_norm="head", layer_class="Qwen3VLTextDecoderLayer"),
    "qwen3_vl_moe_text": Traits(
        qk_norm="head",
        layer_class="Qwen3VLMoeTextDecoderLayer",
        moe_class="Qwen3VLMoeTextSparseMoeBlock",
        moe=Moe(linear_before=None, adapters=False),
    ),
    "internlm": Traits("bias", "bias", layer_class="InternLMDecoderLayer"),
    "internlm3": Traits("qkv_bias", "bias", "bias", layer_class="InternLM3DecoderLayer"),
    "internlm2": Traits(
        "bias", "bias", attention=("wqkv", "wo"), mlp=("w1", "w3", "w2"), head_name="output",
        layer_class="InternLM2DecoderLayer",
    ),
    "baichuan": Traits("", "", attention=("W_pack", "o_proj"), layer_class="BaichuanLayer"),
    "deepseek": Traits(
        layer_class="DeepseekDecoderLayer", moe_class="DeepseekMoE",
        moe=Moe(
            ("n_routed_experts",), layers="first", shared=("n_shared_experts",), router_linear=False, adapters=False,
            modules=True,
        ),
    ),
    "bailing_moe_v2": Traits(
        "use_qkv_bias", "use_bias", attention=("query_key_value", "dense"), qk_norm="head",
        qk_norm_flag="use_qk_norm", layer_class="BailingMoeV2DecoderLayer", moe_class="BailingMoeV2SparseMoeBlock",
        moe=Moe(
            ("num_experts",), layers="first", shared=("num_shared_experts", "n_shared_experts"), router_linear=False, router_float32=True,
            correction="buffer", adapters=False, modules=True,
        ),
    ),
}  # fmt: skip
"""model_type -> what differs."""

ALIASES: dict[str, str] = {
    "mimo": "qwen2",
}
"""model_type -> the entry that describes it too."""
