"""The cases: how the two runs of a pair differ, and the answer that is right.

baseline, candidate, both: options of train.py. baseline_device, candidate_device: see device.py. No ops: the pair agrees.
`ops` holds every name that is right. Where capture itself leaves two, `what` says why.
"""
CASES = []
F64, F32 = {"compute": "float64"}, {"compute": "float32"}
BRIEF = {"extra_info": False}  # no stack.json, no construct.json
BF16 = {"dtype": "bfloat16"}
ONE = {"shape": {"layers": 1}}
TINY = {"shape": {"layers": 1, "width": 8, "vocab": 17, "seq": 6}}


def case(name, model, task, level, what, ops=(), causes=(), fault=None, device=None, **more):
    if fault or device:
        more["candidate_device"] = dict(device or {}, **({"fault": [fault]} if fault else {}))
    CASES.append({"name": name, "model": model, "task": task, "level": level, "what": what, "ops": list(ops), "causes": list(causes), **more})


def op(name, call=0, what="scale", **more):
    return {"op": name, "call": call, "what": what, **more}


# fmt: off
S, T, M = "statistics", "tensor", "md5"
NUM, ARG, GRAD, NF, IN, STRUCT = ["numerics"], ["argument"], ["gradient"], ["non-finite"], ["input"], ["structure"]

case("main", "gpt", T, "mix", "the second GELU uses a tanh form with 0.8 for sqrt(2/pi); everything else differs by rounding only",
     ["Functional.gelu.1.forward"], NUM, op("gelu", 1, "wrong_gelu"), F64)

# One operator computes wrongly forward.
case("gpt_gelu_scale_L1_statistics", "gpt", S, "L1", "GELU 1 returns its output times 1.01",
     ["Functional.gelu.1.forward"], NUM, op("gelu", 1, by=1.01))
case("gpt_gelu_scale_L0_md5", "gpt", M, "L0", "GELU of layer 1 times 1.01, seen from modules only: the function runs in MLP itself",
     ["Module.layers.1.mlp.MLP.forward.0"], NUM, op("gelu", 1, by=1.01), both=BRIEF, steps=2)
case("conv_conv_scale_mix_statistics", "conv", S, "mix", "the second convolution times 1.001",
     ["Functional.conv2d.1.forward"], NUM, op("convolution", 1, by=1.001))
case("conv_conv_element_L1_tensor", "conv", T, "L1", "one element of the first convolution's result is doubled",
     ["Functional.conv2d.0.forward"], NUM, op("convolution", 0, "element", at=133, by=2.0), both=BRIEF)
case("conv_fc_row_L1_tensor", "conv", T, "L1", "one row of the last linear's result off by 2 %",
     ["Functional.linear.0.forward"], NUM, op("addmm", 0, "row", at=1, by=1.02), both=BRIEF)
case("mixer_hardswish_sign_L1_md5", "mixer", M, "L1", "eight elements of the second hardswish have the wrong sign",
     ["Functional.hardswish.1.forward"], NUM, op("hardswish", 1, "negate", at=16, count=8), both=BRIEF)
case("rec_bag_swap_L1_tensor", "rec", T, "L1", "two rows of an embedding bag's result are swapped: minimum, maximum, mean and norm stay",
     ["Functional.embedding_bag.1.forward"], NUM, op("_embedding_bag", 1, "swap", at=0, **{"with": 2}))
case("density_tanh_swap_mix_md5", "density", M, "mix", "two rows of the second tanh are swapped",
     ["Torch.tanh.1.forward"], NUM, op("tanh", 1, "swap", at=1, **{"with": 3}), both=BRIEF)
case("unet_conv_sign_L1_statistics", "unet", S, "L1", "part of a convolution's result has the wrong sign: the norm stays",
     ["Functional.conv2d.3.forward"], NUM, op("convolution", 3, "negate", at=0, count=100), both=BRIEF)
case("gpt_matmul_row_L1_md5", "gpt", M, "L1", "one row of attention's second product in layer 1 off by 5 %",
     ["Torch.matmul.3.forward"], NUM, op("bmm", 3, "row", at=3, by=1.05), both=BRIEF)
case("gpt_sdpa_L1_statistics", "gpt", S, "L1", "the fused attention of layer 1 times 1.02",
     ["Functional.scaled_dot_product_attention.1.forward"], NUM,
     op("_scaled_dot_product_flash_attention_for_cpu", 1, by=1.02), both={"fused_attention": True, **BRIEF})
case("unet_silu_scale_L0_statistics", "unet", S, "L0", "the SiLU before the last convolution of block `down` times 1.01: its own module sees it, not the leaf",
     ["Module.down.ResBlock.forward.0"], NUM, op("silu", 3, by=1.01), both=BRIEF)
case("conv_step1_conv_L1_statistics", "conv", S, "L1", "the second convolution is wrong by 1 % from step 1 on",
     ["Functional.conv2d.1.forward"], NUM, op("convolution", 1, by=1.01, step=1), steps=2, step=1)

# Only the backward pass of one operator.
case("gpt_gelu_backward_L1_statistics", "gpt", S, "L1", "the backward of GELU 0 is 1 % off",
     ["Functional.gelu.0.backward"], GRAD, op("gelu_backward", 1, by=1.01, phase="backward"), both=BRIEF)
case("conv_bn_backward_L0_statistics", "conv", S, "L0", "the gradient of the second batch norm's input is 2 % off",
     ["Module.bns.1.BatchNorm2d.backward.0"], GRAD, op("native_batch_norm_backward", 0, by=1.02, phase="backward"))
case("gpt_linear_backward_L0_statistics", "gpt", S, "L0", "fc1 of layer 1 passes back a gradient 1 % off",
     ["Module.layers.1.mlp.fc1.Linear.backward.0"], GRAD, op("mm", 4, by=1.01, phase="backward"), both=BRIEF)
case("gpt_linear_backward_L1_statistics", "gpt", S, "L1",
     "the same seen from APIs: a 3-D linear's backward shows only a view of its gradient, so the next operator's input is the first sight of it",
     ["Functional.linear.6.backward", "Functional.layer_norm.3.backward"], GRAD, op("mm", 4, by=1.01, phase="backward"), both=BRIEF)
case("rec_sigmoid_backward_L1_statistics", "rec", S, "L1", "one element of the sigmoid's gradient 3 % off",
     ["Torch.sigmoid.0.backward"], GRAD, op("sigmoid_backward", 0, "element", at=2, by=1.03, phase="backward"), both=BRIEF)
case("unet_groupnorm_backward_L1_statistics", "unet", S, "L1", "the gradient of a group norm's input 2 % off",
     ["Functional.group_norm.3.backward"], GRAD, op("native_group_norm_backward", 2, by=0.98, phase="backward"), both=BRIEF)
case("mixer_function_backward_L1_statistics", "mixer", S, "L1",
     "a user's autograd.Function scales its gradient by 1.01: capture shows the calls of its backward as forward calls with a scalar argument",
     ["Tensor.__mul__.5.forward"], ["argument", "gradient"], candidate={"swish_backward": 1.01}, both={"swish_backward": 1.0, **BRIEF})
case("gpt_linear_backward_bf16_L0_statistics", "gpt", S, "L0", "fc1 of layer 1 computes the gradient of its input in bf16",
     ["Module.layers.1.mlp.fc1.Linear.backward.0"], GRAD, op("mm", 4, "compute", dtype="bfloat16", phase="backward"), both=BRIEF)

# Only a parameter's gradient.
case("gpt_weight_grad_L0_statistics", "gpt", S, "L0", "the weight gradient of layer 1's attention projection 5 % off",
     ["Module.layers.1.attn.proj.Linear.parameters_grad.0"], GRAD, op("mm", 7, by=1.05, phase="backward"), both=BRIEF)
case("conv_bias_grad_mix_statistics", "conv", S, "mix", "the bias gradient of the last linear 5 % off: its backward and its parameters show it",
     ["Functional.linear.0.backward", "Module.fc.Linear.parameters_grad.0"], GRAD, op("sum", 0, by=1.05, phase="backward"))
case("conv_weight_grad_L0_tensor", "conv", T, "L0", "one element of the second convolution's weight gradient 10 % off",
     ["Module.convs.1.Conv2d.parameters_grad.0"], GRAD,
     op("convolution_backward", 0, "element", at=100, by=1.1, output=1, phase="backward"), both=BRIEF)
case("unet_norm_bias_grad_L0_md5", "unet", M, "L0", "the bias gradient of the last group norm 1 % off",
     ["Module.up.norm2.GroupNorm.parameters_grad.0"], GRAD, op("native_group_norm_backward", 0, by=1.01, output=2, phase="backward"), both=BRIEF)
case("gpt_embedding_grad_mix_statistics", "gpt", S, "mix", "one row of the token embedding's gradient times 1.5",
     ["Functional.embedding.0.backward", "Module.wte.Embedding.parameters_grad.0"], GRAD,
     op("embedding_dense_backward", 1, "scale", by=1.5, phase="backward"), both=BRIEF | ONE)

# Only an argument.
case("gpt_ln_eps_L1_statistics", "gpt", S, "L1", "layer norm 2 has eps 1e-2 for 1e-5",
     ["Functional.layer_norm.2.forward"], ARG, candidate={"ln_eps": {"1": 1e-2}})
case("conv_bn_eps_L1_tensor", "conv", T, "L1", "the second batch norm has eps 1e-3 for 1e-5",
     ["Functional.batch_norm.1.forward"], ARG, candidate={"bn_eps": {"1": 1e-3}}, both=BRIEF)
case("conv_bn_momentum_L1_statistics", "conv", S, "L1",
     "batch norm 0 has momentum 0.5 for 0.1: its outputs agree in both steps, only the running statistics that step 1 reads differ",
     ["Functional.batch_norm.0.forward"], ARG, candidate={"bn_momentum": {"0": 0.5}}, steps=2, both=BRIEF)
case("gpt_gelu_tanh_L1_statistics", "gpt", S, "L1", "GELU 0 has approximate='tanh'",
     ["Functional.gelu.0.forward"], ARG, candidate={"gelu": {"0": "tanh"}}, both=BRIEF)
case("gpt_label_smoothing_L1_md5", "gpt", M, "L1", "the loss has label_smoothing 0.1",
     ["Functional.cross_entropy.0.forward"], ARG, candidate={"label_smoothing": 0.1}, both=BRIEF | ONE)
case("unet_interpolate_L1_statistics", "unet", S, "L1", "interpolate has mode bilinear for nearest",
     ["Functional.interpolate.0.forward"], ARG, candidate={"interpolate": "bilinear"}, both=BRIEF)
case("density_eps_L1_statistics", "density", S, "L1", "1e-2 is added to a variance in place of 1e-6: the scalar operand of an addition",
     ["Tensor.__add__.0.forward"], ARG, candidate={"eps": 1e-2}, both=BRIEF)
case("gpt_attn_div_L1_statistics", "gpt", S, "L1", "attention of layer 1 divides by the head's width, not by its root",
     ["Tensor.__truediv__.1.forward"], ARG, candidate={"attn_div": {"1": 8.0}}, both=BRIEF)
case("conv_dropout_p_eval_L1_statistics", "conv", S, "L1", "p of a dropout that is switched off differs: nothing else does",
     ["Functional.dropout.0.forward"], ARG, candidate={"p": 0.5}, both=BRIEF)

# A mask, which is made by calls that capture leaves out.
case("gpt_mask_L1_tensor", "gpt", T, "L1", "the causal mask of layer 0 lets every token see one ahead: the mask itself is the first thing recorded",
     ["Tensor.__add__.1.forward"], ["input", "non-finite"], candidate={"mask_shift": {"0": 1}}, both=BRIEF | TINY)
case("gpt_mask_L1_statistics", "gpt", S, "L1", "the same mask in layer 1: the mask's statistics are equal (0, -inf), so softmax is the first to show it",
     ["Tensor.__add__.4.forward", "Functional.softmax.1.forward"], ["input", "non-finite", "numerics"], candidate={"mask_shift": {"1": 1}}, both=BRIEF)

# NaN and Inf.
case("density_nan_log_L1_statistics", "density", S, "L1", "log gives one NaN, which everything after it carries",
     ["Torch.log.0.forward"], NF, op("log", 0, "element", at=5, value="nan"))
case("density_nan_div_mix_md5", "density", M, "mix", "a division gives one NaN",
     ["Tensor.__truediv__.0.forward"], NF, op("div", 0, "element", at=7, value="nan"), both=BRIEF)
case("gpt_inf_matmul_L1_statistics", "gpt", S, "L1", "attention's first product in layer 1 overflows in one place; softmax makes NaN of it",
     ["Torch.matmul.2.forward"], NF, op("bmm", 2, "element", at=9, value="inf"), both=BRIEF)
case("unet_inf_exp_L1_md5", "unet", M, "L1", "exp gives one Inf, sin makes NaN of it",
     ["Torch.exp.0.forward"], NF, op("exp", 0, "element", at=1, value="inf"), both=BRIEF)
case("rec_nan_backward_L1_statistics", "rec", S, "L1", "the gradient of the loss has one NaN",
     ["Functional.binary_cross_entropy.0.backward"], ["non-finite", "gradient"],
     op("binary_cross_entropy_backward", 0, "element", at=0, value="nan", phase="backward"))
case("gpt_nan_backward_L0_statistics", "gpt", S, "L0",
     "softmax's backward in layer 1 makes a NaN: it runs in Attention itself, whose qkv is recorded first and already reads the NaN",
     ["Module.layers.1.attn.Attention.backward.0", "Module.layers.1.attn.qkv.Linear.backward.0"], ["non-finite", "gradient"],
     op("_softmax_backward_data", 0, "element", at=4, value="nan", phase="backward"), both=BRIEF)

# The precision of one operator.
case("gpt_linear_bf16_L1_statistics", "gpt", S, "L1", "linear 6 computes in bf16 and returns float32",
     ["Functional.linear.6.forward"], NUM, op("addmm", 6, "compute", dtype="bfloat16"), both=BRIEF)
case("gpt_linear_fp16_L1_tensor", "gpt", T, "L1", "linear 2 computes in float16 and returns float32",
     ["Functional.linear.2.forward"], NUM, op("addmm", 2, "compute", dtype="float16"), both=BRIEF | TINY)
case("conv_conv_bf16_L0_tensor", "conv", T, "L0", "the second convolution computes in bf16 and returns float32",
     ["Module.convs.1.Conv2d.forward.0"], NUM, op("convolution", 1, "compute", dtype="bfloat16"), both=BRIEF)
case("mixer_layernorm_fp16_mix_statistics", "mixer", S, "mix", "layer norm 2 computes in float16 and returns float32",
     ["Functional.layer_norm.2.forward"], NUM, op("native_layer_norm", 2, "compute", dtype="float16"), both=BRIEF)
case("gpt_autocast_L1_statistics", "gpt", S, "L1", "linear 6 runs under autocast: its result is bf16 where the baseline has float32",
     ["Functional.linear.6.forward"], ["dtype"], candidate={"autocast_mlp": 1})

# Other data, other weights.
case("gpt_other_batch_L1_statistics", "gpt", S, "L1", "the candidate trains on another batch",
     ["Functional.embedding.0.forward"], IN, candidate={"batch": {"0": 7}}, both=BRIEF)
case("conv_other_batch_L0_tensor", "conv", T, "L0", "the candidate trains on another batch",
     ["Module.convs.0.Conv2d.forward.0"], IN, candidate={"batch": {"0": 7}}, both=BRIEF)
case("conv_input_element_mix_statistics", "conv", S, "mix", "one pixel of the input differs by 0.1",
     ["Functional.conv2d.0.forward"], IN, candidate={"nudge": {"index": 10, "by": 0.1}}, both=BRIEF)
case("rec_batch_step1_L1_statistics", "rec", S, "L1", "the candidate reads another batch in step 1",
     ["Functional.linear.0.forward"], IN, candidate={"batch": {"1": 9}}, steps=2, step=1, both=BRIEF)
case("gpt_weight_L0_statistics", "gpt", S, "L0", "the weights of layer 1's fc1 start 1 % larger",
     ["Module.layers.1.mlp.fc1.Linear.forward.0"], IN, candidate={"weight": {"name": "layers.1.mlp.fc1.weight", "factor": 1.01}}, both=BRIEF)
case("mixer_weight_L1_statistics", "mixer", S, "L1", "one weight of layer norm 2 starts 1 % larger",
     ["Functional.layer_norm.2.forward"], IN, candidate={"weight": {"name": "norms.2.weight", "factor": 1.01, "count": 1}}, both=BRIEF)
case("rec_weight_L1_md5", "rec", M, "L1", "one weight of the second embedding bag starts 10 % larger",
     ["Functional.embedding_bag.1.forward"], IN, candidate={"weight": {"name": "bags.1.weight", "factor": 1.1, "count": 1}})

# Another sequence of operators.
case("gpt_missing_dropout_L1_statistics", "gpt", S, "L1", "a dropout with p 0 is missing in the candidate: the next one takes its number, no value differs",
     ["Functional.dropout.0.forward"], STRUCT, candidate={"no_dropout": 0})
case("conv_extra_relu_L1_statistics", "conv", S, "L1", "a second ReLU on a result that has no negatives: later numbers shift, no value differs",
     ["Functional.relu.1.forward"], STRUCT, candidate={"extra_relu": 0}, both=BRIEF)
case("gpt_extra_relu_L1_statistics", "gpt", S, "L1", "an extra ReLU follows GELU 1",
     ["Functional.relu.0.forward"], STRUCT, candidate={"extra_relu": 1}, both=BRIEF)
case("gpt_missing_relu_mix_statistics", "gpt", S, "mix", "a ReLU behind GELU 0 is missing in the candidate",
     ["Functional.relu.0.forward", "Functional.linear.3.forward"], STRUCT, baseline={"extra_relu": 0}, both=BRIEF | ONE)

# One rank.
case("gpt_rank1_linear_L1_statistics", "gpt", S, "L1", "linear 3 is 2 % off on rank 1",
     ["Functional.linear.3.forward"], NUM, op("addmm", 3, by=1.02, rank=1), world=2, rank=1, both=BRIEF | ONE)
case("conv_rank1_bn_L0_statistics", "conv", S, "L0", "one element of the second batch norm off on rank 1",
     ["Module.module.bns.1.BatchNorm2d.forward.0"], NUM, op("native_batch_norm", 1, "element", at=20, by=1.2, rank=1), world=2, rank=1, both=BRIEF)
case("rec_rank1_batch_L1_statistics", "rec", S, "L1", "rank 1 reads another batch in step 1",
     ["Functional.linear.0.forward"], IN, candidate={"batch": {"1": 9}, "batch_rank": 1}, world=2, rank=1, steps=2, step=1, both=BRIEF)

# Sound pairs: nothing may be reported.
case("gpt_same_mix_statistics", "gpt", S, "mix", "the same run twice", both=ONE)
case("conv_md5_race_L1_md5", "conv", M, "L1",
     "the same run twice: the existing tool takes the checksum of an in-place operator's input too late now and then, so checksums "
     "of inputs of add_ and of a batch norm's running statistics differ while all statistics and all results agree "
     "(make it again until `check.py -v` shows it)", steps=2, notes=["hash"])
case("unet_same_L0_md5", "unet", M, "L0", "the same run twice", both=BRIEF)
case("rec_same_ranks_L1_md5", "rec", M, "L1", "the same run twice, two ranks", world=2, both=BRIEF)
case("gpt_threads_L1_statistics", "gpt", S, "L1", "two threads and other kernels in place of one", candidate={"threads": 2, "mkldnn": False}, steps=2, both=BRIEF, noise=True)
case("conv_threads_L1_tensor", "conv", T, "L1", "two threads and other kernels in place of one", candidate={"threads": 2, "mkldnn": False}, both=BRIEF, noise=True)
case("gpt_round_L1_statistics", "gpt", S, "L1", "every operator rounded from float64; three steps", device=F64, steps=3, both=BRIEF)
case("gpt_round_adamw_L0_statistics", "gpt", S, "L0", "the same with AdamW, which makes full steps of gradients that are zero but for rounding",
     device=F64, steps=3, both=BRIEF | {"optimizer": "adamw"})
case("conv_round_mix_tensor", "conv", T, "mix", "every operator rounded from float64: the gradients of biases before a batch norm are rounding and nothing else",
     device=F64, both=BRIEF)
case("conv_round_L0_statistics", "conv", S, "L0", "the same from modules and statistics, three steps", device=F64, steps=3)
case("unet_round_L0_statistics", "unet", S, "L0", "every operator rounded from float64", device=F64, steps=2, both=BRIEF)
case("rec_round_L1_statistics", "rec", S, "L1", "every operator rounded from float64", device=F64, steps=3, both=BRIEF)
case("density_round_L1_tensor", "density", T, "L1", "every operator rounded from float64: the gradient of a mean cancels to nothing", device=F64, both=BRIEF)
case("density_round_L1_statistics", "density", S, "L1", "the same from statistics, three steps", device=F64, steps=3, both=BRIEF)
case("mixer_round_adamw_L1_statistics", "mixer", S, "L1", "every operator rounded from float64, AdamW", device=F64, steps=2, both=BRIEF | {"optimizer": "adamw"})
case("gpt_bf16_round_L1_statistics", "gpt", S, "L1", "both in bf16, the candidate's operators computed in float32", device=F32, steps=2, both=BRIEF | BF16)
case("conv_bf16_round_L1_tensor", "conv", T, "L1", "both in bf16, the candidate's operators computed in float32", device=F32, both=BRIEF | BF16)
case("gpt_fp32_bf16_L1_statistics", "gpt", S, "L1", "the whole candidate in bf16", candidate=BF16, both=BRIEF, noise=True, notes=["mixed-precision"])
case("conv_fp32_bf16_L1_tensor", "conv", T, "L1", "the whole candidate in bf16", candidate=BF16, both=BRIEF, noise=True, notes=["mixed-precision"])
case("density_nan_both_L1_statistics", "density", S, "L1", "both runs make the same NaN at the same place",
     baseline_device={"fault": [op("log", 0, "element", at=5, value="nan")]}, device={"compute": "float64", "fault": [op("log", 0, "element", at=5, value="nan")]},
     both=BRIEF, notes=["non-finite"])
case("gpt_old_format_mix_statistics", "gpt", S, "mix", "the baseline as version 1.3.0 of the tool wrote it", baseline_old=True, both=ONE)
case("conv_old_format_L1_tensor", "conv", T, "L1", "the candidate as version 1.3.0 of the tool wrote it", candidate_old=True, device=F64)

# Faults above rounding.
case("gpt_round_gelu_L1_statistics", "gpt", S, "L1", "GELU 1 times 1.01 above rounding",
     ["Functional.gelu.1.forward"], NUM, op("gelu", 1, by=1.01), F64, both=BRIEF)
case("gpt_round_linear_bf16_L1_tensor", "gpt", T, "L1", "linear 2 in bf16 above rounding",
     ["Functional.linear.2.forward"], NUM, op("addmm", 2, "compute", dtype="bfloat16"), F64, both=BRIEF | TINY)
case("gpt_round_ln_eps_L1_statistics", "gpt", S, "L1", "layer norm 2 has eps 1e-3, above rounding",
     ["Functional.layer_norm.2.forward"], ARG, candidate={"ln_eps": {"1": 1e-3}}, device=F64, both=BRIEF)
case("unet_round_conv_bf16_L1_statistics", "unet", S, "L1", "convolution 4 in bf16 above rounding",
     ["Functional.conv2d.4.forward"], NUM, op("convolution", 4, "compute", dtype="bfloat16"), F64, both=BRIEF)
case("conv_round_conv_scale_L0_statistics", "conv", S, "L0", "the second convolution times 1.001 above rounding",
     ["Module.convs.1.Conv2d.forward.0"], NUM, op("convolution", 1, by=1.001), F64)
case("conv_round_bn_backward_L1_tensor", "conv", T, "L1", "the second batch norm's gradient 1 % off above rounding",
     ["Functional.batch_norm.1.backward"], GRAD, op("native_batch_norm_backward", 0, by=1.01, phase="backward"), F64, both=BRIEF)
case("mixer_round_weight_grad_L0_statistics", "mixer", S, "L0", "the last linear's weight gradient 1 % off above rounding",
     ["Module.head.Linear.parameters_grad.0"], GRAD, op("mm", 1, by=1.01, phase="backward"), F64, both=BRIEF)
case("gpt_round_gelu_step1_L1_statistics", "gpt", S, "L1", "GELU 0 times 1.01 from step 1 on, above rounding",
     ["Functional.gelu.0.forward"], NUM, op("gelu", 0, by=1.01, step=1), F64, steps=2, step=1, both=BRIEF)
case("gpt_bf16_round_gelu_L1_statistics", "gpt", S, "L1", "both in bf16; GELU 1 times 1.05 above bf16 rounding",
     ["Functional.gelu.1.forward"], NUM, op("gelu", 1, by=1.05), F32, both=BRIEF | BF16)
case("conv_bf16_round_conv_L1_tensor", "conv", T, "L1", "both in bf16; the second convolution times 1.03 above bf16 rounding",
     ["Functional.conv2d.1.forward"], NUM, op("convolution", 1, by=1.03), F32, both=BRIEF | BF16)
case("gpt_fp32_bf16_gelu_L1_statistics", "gpt", S, "L1", "the whole candidate in bf16, and GELU 1 times 1.1",
     ["Functional.gelu.1.forward"], NUM, op("gelu", 1, by=1.1), candidate=BF16, both=BRIEF, noise=True, notes=["mixed-precision"])
case("density_round_nan_mix_statistics", "density", S, "mix", "softplus gives one NaN above rounding",
     ["Functional.softplus.0.forward"], NF, op("softplus", 0, "element", at=3, value="nan"), F64, both=BRIEF)
# fmt: on
