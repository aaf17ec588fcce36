"""The operators of the device: what each is given, and how ATen's kernels of the host compute it.

A parameter is `name:kind`. Kinds: `t` tensor, `o` result, `u` tensor that is updated, `v` one that is updated on the side, `g` result whose size is found out, `l` `p` `w` lists of `t` `o` `u`, `s` number
with a type, `S` list of such, `i` integer, `n` 8-bit integer, `y` element type, `d` double, `f` float, `b` truth value, `a` integers,
`B` truth values, `F` floats, `c` text. An expression gives the results in the order of the parameters that take them. One in
braces is a body that writes to its tensors itself.
"""

from __future__ import annotations

#: Name without `aclnn`, parameters, expression.
OPERATORS: list[tuple[str, str, str]] = []


def op(name: str, parameters: str, expression: str) -> None:
    OPERATORS.append((name, parameters, expression))


def both(name: str, first: str, rest: str, expression: str) -> None:
    """An operator that has a form of its own for the update of its first argument."""
    op(name, f"{first}:t {rest} out:o", expression)
    op(f"Inplace{name}", f"{first}:u {rest}", expression)


# One tensor, element by element.
for _name in (
    "Abs Neg Exp Exp2 Expm1 Log Log2 Log10 Log1p Sqrt Rsqrt Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh "
    "Sigmoid Erf Erfc Erfinv Floor Ceil Round Trunc Frac Sign Relu"
).split():
    both(_name, "self", "", f"at::{_name.lower()}(self)")
op("Silu", "self:t out:o", "at::silu(self)")
op("InplaceSilu", "self:u", "at::silu(self)")
op("Mish", "self:t out:o", "at::mish(self)")
op("Softplus", "self:t beta:s threshold:s out:o", "at::softplus(self, beta, threshold)")
op("LeakyRelu", "self:t slope:s out:o", "at::leaky_relu(self, slope)")
op("InplaceLeakyRelu", "self:u slope:s", "at::leaky_relu(self, slope)")
op("Elu", "self:t alpha:s scale:s inputScale:s out:o", "at::elu(self, alpha, scale, inputScale)")
both("Hardswish", "self", "", "at::hardswish(self)")
both("Hardsigmoid", "self", "", "at::hardsigmoid(self)")
op("Gelu", "self:t out:o", "at::gelu(self)")
op("GeluV2", "self:t approximate:i out:o", 'at::gelu(self, approximate != 0 ? "tanh" : "none")')
op("FastGelu", "self:t out:o", 'at::gelu(self, "tanh")')
for _name in "LogicalNot BitwiseNot".split():
    op(_name, "self:t out:o", f"at::{'logical' if _name[0] == 'L' else 'bitwise'}_not(self)")
op("InplaceLogicalNot", "self:u", "at::logical_not(self)")
op("IsFinite", "self:t out:o", "at::isfinite(self)")
op("IsInf", "self:t out:o", "at::isinf(self)")
op("IsPosInf", "self:t out:o", "at::isposinf(self)")
op("IsNegInf", "self:t out:o", "at::isneginf(self)")
op("Signbit", "self:t out:o", "at::signbit(self)")
op("NanToNum", "self:t nan:f posinf:f neginf:f out:o", "at::nan_to_num(self, nan, posinf, neginf)")
op("Real", "self:t out:o", "at::real(self)")
op("Cast", "self:t dtype:y out:o", "self")
op("InplaceCopy", "self:u source:t", "source")
op("InplaceFillScalar", "self:u value:s", "{ self.fill_(value); }")
op("InplaceFillTensor", "self:u value:t", "{ self.fill_(value); }")
op("InplaceZero", "self:u", "{ self.zero_(); }")
op("InplaceOne", "self:u", "{ self.fill_(1); }")

# Two, element by element. Names with an `s` at the end take a number.
for _name in "Add Sub".split():
    for _suffix, _kind in (("", "t"), ("s", "s")):
        both(_name + _suffix, "self", f"other:{_kind} alpha:s", f"at::{_name.lower()}(self, other, alpha)")
for _name in "Mul Div".split():
    for _suffix, _kind in (("", "t"), ("s", "s")):
        both(_name + _suffix, "self", f"other:{_kind}", f"at::{_name.lower()}(self, other)")
for _suffix, _kind in (("", "t"), ("s", "s")):
    both(f"DivMod{_suffix}", "self", f"other:{_kind} mode:i", "at::div(self, other, rounding(mode))")
    both(f"FloorDivide{_suffix}", "self", f"other:{_kind}", "at::floor_divide(self, other)")
for _name, _function in (("Remainder", "remainder"), ("Fmod", "fmod")):
    _tensors, _scalar = ("TensorTensor", "TensorScalar") if _name == "Remainder" else ("Tensor", "Scalar")
    both(_name + _tensors, "self", "other:t", f"at::{_function}(self, other)")
    both(_name + _scalar, "self", "other:s", f"at::{_function}(self, other)")
op("Rsubs", "self:t other:s alpha:s out:o", "at::rsub(self, other, alpha)")
op("RemainderScalarTensor", "self:s other:t out:o", "at::remainder(self, other)")
both("PowTensorScalar", "self", "exponent:s", "at::pow(self, exponent)")
both("PowTensorTensor", "self", "exponent:t", "at::pow(self, exponent)")
op("PowScalarTensor", "self:s exponent:t out:o", "at::pow(self, exponent)")
both("Atan2", "self", "other:t", "at::atan2(self, other)")
op("Maximum", "self:t other:t out:o", "at::maximum(self, other)")
op("Minimum", "self:t other:t out:o", "at::minimum(self, other)")
op("Clamp", "self:t least:s greatest:s out:o", "at::clamp(self, least, greatest)")
op("ClampTensor", "self:t least:t greatest:t out:o", "at::clamp(self, optional(least), optional(greatest))")
both("ClampMin", "self", "least:s", "at::clamp_min(self, least)")
both("ClampMax", "self", "greatest:s", "at::clamp_max(self, greatest)")
op("ClampMinTensor", "self:t least:t out:o", "at::clamp_min(self, least)")
op("ClampMaxTensor", "self:t greatest:t out:o", "at::clamp_max(self, greatest)")
for _name in "Eq Ne Gt Ge Lt Le".split():
    for _suffix, _kind in (("Tensor", "t"), ("Scalar", "s")):
        both(_name + _suffix, "self", f"other:{_kind}", f"at::{_name.lower()}(self, other)")
for _name in "And Or Xor".split():
    both(f"Logical{_name}", "self", "other:t", f"at::logical_{_name.lower()}(self, other)")
    for _suffix, _kind in (("Tensor", "t"), ("Scalar", "s")):
        both(f"Bitwise{_name}{_suffix}", "self", f"other:{_kind}", f"at::bitwise_{_name.lower()}(self, other)")
for _name, _function in (("LeftShift", "left_shift"), ("RightShift", "right_shift")):
    op(_name, "self:t bits:t out:o", f"at::bitwise_{_function}(self, bits)")
    op(f"{_name}s", "self:t bits:s out:o", f"at::bitwise_{_function}(self, bits)")
both("Addcmul", "self", "first:t second:t value:s", "at::addcmul(self, first, second, value)")
both("Addcdiv", "self", "first:t second:t value:s", "at::addcdiv(self, first, second, value)")
op("Lerp", "self:t end:t weight:t out:o", "at::lerp(self, end, weight)")
op("Lerps", "self:t end:t weight:s out:o", "at::lerp(self, end, weight)")
op("InplaceLerp", "self:u end:t weight:t", "at::lerp(self, end, weight)")
op("InplaceLerps", "self:u end:t weight:s", "at::lerp(self, end, weight)")
op("SWhere", "condition:t self:t other:t out:o", "at::where(condition.to(at::kBool), self, other)")
op("InplaceMaskedFillScalar", "self:u mask:t value:s", "at::masked_fill(self, mask.to(at::kBool), value)")
op("InplaceMaskedFillTensor", "self:u mask:t value:t", "at::masked_fill(self, mask.to(at::kBool), value.reshape({}))")
op("Equal", "self:t other:t out:o", "at::scalar_tensor(at::equal(self, other), at::kBool)")

# Gradients, element by element.
op("GeluBackward", "gradient:t self:t out:o", "at::gelu_backward(gradient, self)")
op("GeluBackwardV2", "gradient:t self:t approximate:c out:o", "at::gelu_backward(gradient, self, approximate)")
op("FastGeluBackward", "gradient:t self:t out:o", 'at::gelu_backward(gradient, self, "tanh")')
op("HardswishBackward", "gradient:t self:t out:o", "at::hardswish_backward(gradient, self)")
op("HardsigmoidBackward", "gradient:t self:t out:o", "at::hardsigmoid_backward(gradient, self)")
op("SiluBackward", "gradient:t self:t out:o", "at::silu_backward(gradient, self)")
op("SigmoidBackward", "gradient:t result:t out:o", "at::sigmoid_backward(gradient, result)")
op("TanhBackward", "gradient:t result:t out:o", "at::tanh_backward(gradient, result)")
op("ThresholdBackward", "gradient:t self:t threshold:s out:o", "at::threshold_backward(gradient, self, threshold)")
op("LeakyReluBackward", "gradient:t self:t slope:s isResult:b out:o", "at::leaky_relu_backward(gradient, self, slope, isResult)")

# Over dimensions.
op("ReduceSum", "self:t dims:a keep:b dtype:y out:o", "self.scalar_type() == at::kBool ? counted(self, dims, keep) : sum_over(to(self, dtype), dims, keep)")
op("Mean", "self:t dims:a keep:b dtype:y out:o", "mean_over(to(self, dtype), dims, keep)")
op("MeanV2", "self:t dims:a keep:b noop:b out:o", "mean_over(self, dims, keep)")
op("Amax", "self:t dims:a keep:b out:o", "at::amax(self, dims, keep)")
op("Amin", "self:t dims:a keep:b out:o", "at::amin(self, dims, keep)")
op("Max", "self:t out:o", "at::max(self)")
op("Min", "self:t out:o", "at::min(self)")
op("MaxDim", "self:t dim:i keep:b out:o indices:o", "at::max(self, dim, keep)")
op("MinDim", "self:t dim:i keep:b out:o indices:o", "at::min(self, dim, keep)")
op("Aminmax", "self:t dims:a keep:b least:o greatest:o", "std::make_tuple(at::amin(self, dims, keep), at::amax(self, dims, keep))")
op("AminmaxAll", "self:t least:o greatest:o", "std::make_tuple(at::amin(self), at::amax(self))")
op("AminmaxDim", "self:t dim:i keep:b least:o greatest:o", "std::make_tuple(at::amin(self, dim, keep), at::amax(self, dim, keep))")
op("ArgMax", "self:t dim:i keep:b out:o", "at::argmax(self, dim, keep)")
op("ArgMin", "self:t dim:i keep:b out:o", "at::argmin(self, dim, keep)")
op("All", "self:t dims:a keep:b out:o", "at::all(self, dims, keep)")
op("Any", "self:t dims:a keep:b out:o", "at::any(self, dims, keep)")
op("Prod", "self:t dtype:y out:o", "at::prod(to(self, dtype))")
op("ProdDim", "self:t dim:i keep:b dtype:y out:o", "at::prod(to(self, dtype), dim, keep)")
op("Norm", "self:t p:s dims:a keep:b out:o", "at::linalg_vector_norm(self, p, dims, keep)")
op("LinalgVectorNorm", "self:t p:s dims:a keep:b dtype:y out:o", "at::linalg_vector_norm(to(self, dtype), p, dims, keep)")
op("Cumsum", "self:t dim:i dtype:y out:o", "at::cumsum(to(self, dtype), dim)")
op("CumsumV2", "self:t dim:i exclusive:b reverse:b out:o", "at::cumsum(self, dim)")
op("Var", "self:t dims:a unbiased:b keep:b out:o", "at::var(self, dims, int64_t(unbiased), keep)")
op("VarCorrection", "self:t dims:a correction:i keep:b out:o", "at::var(self, dims, correction, keep)")
op("VarMean", "self:t dims:a correction:i keep:b out:o mean_:o", "at::var_mean(self, dims, correction, keep)")
op("Std", "self:t dims:a correction:i keep:b out:o", "at::std(self, dims, correction, keep)")
op("StdMeanCorrection", "self:t dims:a correction:i keep:b out:o mean_:o", "at::std_mean(self, dims, correction, keep)")
op("Softmax", "self:t dim:i out:o", "at::softmax(self, dim)")
op("LogSoftmax", "self:t dim:i out:o", "at::log_softmax(self, dim)")
op("ScaledMaskedSoftmax", "self:t mask:t scale:d fixed:b out:o", "scaled_masked_softmax(self, mask, scale, fixed)")
op("ScaledMaskedSoftmaxBackward", "gradient:t result:t mask:t scale:d fixed:b out:o",
   "scaled_masked_softmax_backward(gradient, result, mask, scale)")
op("SoftmaxBackward", "gradient:t result:t dim:i out:o", "at::_softmax_backward_data(gradient, result, dim, result.scalar_type())")
op("LogSoftmaxBackward", "gradient:t result:t dim:i out:o", "at::_log_softmax_backward_data(gradient, result, dim, result.scalar_type())")
op("LogSumExp", "self:t dims:a keep:b out:o", "at::logsumexp(self, dims, keep)")
op("Topk", "self:t k:i dim:i largest:b sorted:b out:o indices:o", "at::topk(self, k, dim, largest, sorted)")
op("Sort", "self:t stable:b dim:i descending:b out:o indices:o", "at::sort(self, stable, dim, descending)")
op("Argsort", "self:t dim:i descending:b out:o", "at::argsort(self, dim, descending)")
op("Bincount", "self:t weights:t least:i out:o", "at::bincount(self, weights, least)")

# Products.
op("Mm", "self:t other:t out:o math:n", "product(self, other, math)")
op("Matmul", "self:t other:t out:o math:n", "product(self, other, math)")
op("BatchMatMul", "self:t other:t out:o math:n", "product(self, other, math)")
op("Mv", "self:t vector:t out:o math:n", "product(self, vector, math)")
op("Dot", "self:t other:t out:o", "product(self, other, 0)")
op("Addmm", "self:t first:t second:t beta:s alpha:s out:o math:n", "at::add(product(first, second, math).mul(alpha), self, beta)")
op("InplaceAddmm", "self:u first:t second:t beta:s alpha:s math:n", "at::add(product(first, second, math).mul(alpha), self, beta)")
op("Baddbmm", "self:t first:t second:t beta:s alpha:s out:o math:n", "at::add(product(first, second, math).mul(alpha), self, beta)")
op("InplaceBaddbmm", "self:u first:t second:t beta:s alpha:s math:n", "at::add(product(first, second, math).mul(alpha), self, beta)")
op("Addmv", "self:t matrix:t vector:t alpha:s beta:s out:o math:n", "at::add(product(matrix, vector, math).mul(alpha), self, beta)")
op("Addr", "self:t first:t second:t beta:s alpha:s out:o", "at::addr(self, first, second, beta, alpha)")
_CONVOLUTION = "stride:a padding:a dilation:a transposed:b outputPadding:a groups:i"
op("Convolution", f"input:t weight:t bias:t {_CONVOLUTION} out:o math:n",
   "at::convolution(factor(input, math), factor(weight, math), optional(bias), stride, padding, dilation, transposed, outputPadding, groups)")
op("ConvolutionBackward", f"gradient:t input:t weight:t biasSizes:a {_CONVOLUTION} mask:B math:n ofInput:o ofWeight:o ofBias:o",
   "at::convolution_backward(factor(gradient, math), factor(input, math), factor(weight, math), biasSizes, stride, padding, dilation, transposed, outputPadding, groups, three(mask))")

# Layers.
op("LayerNorm", "input:t shape:a weight:t bias:t epsilon:d out:o mean_:o deviation:o",
   "at::native_layer_norm(input, shape, optional(weight), optional(bias), epsilon)")
op("LayerNormBackward", "gradient:t input:t shape:a mean_:t deviation:t weight:t bias:t mask:B ofInput:o ofWeight:o ofBias:o",
   "layer_norm_backward(gradient, input, shape, mean_, deviation, weight, bias, three(mask))")
op("GroupNorm", "input:t weight:t bias:t batch:i channels:i area:i groups:i epsilon:d out:o mean_:o deviation:o",
   "at::native_group_norm(input, optional(weight), optional(bias), batch, channels, area, groups, epsilon)")
op("GroupNormBackward", "gradient:t input:t mean_:t deviation:t weight:t batch:i channels:i area:i groups:i mask:B ofInput:o ofWeight:o ofBias:o",
   "at::native_group_norm_backward(gradient, input, mean_, deviation, optional(weight), batch, channels, area, groups, three(mask))")
op("BatchNorm", "input:t weight:t bias:t runningMean:v runningVariance:v training:b momentum:d epsilon:d out:o mean_:o deviation:o",
   "batch_norm(input, optional(weight), optional(bias), runningMean, runningVariance, training, momentum, epsilon)")
op("BatchNormBackward", "gradient:t input:t weight:t runningMean:t runningVariance:t mean_:t deviation:t training:b epsilon:d mask:B ofInput:o ofWeight:o ofBias:o",
   "at::native_batch_norm_backward(gradient, input, optional(weight), optional(runningMean), optional(runningVariance), optional(mean_), optional(deviation), training, epsilon, three(mask))")
op("RmsNorm", "input:t weight:t epsilon:d out:o deviation:o", "rms_norm(input, weight, epsilon)")
op("RmsNormGrad", "gradient:t input:t deviation:t weight:t ofInput:o ofWeight:o", "rms_norm_backward(gradient, input, deviation, weight)")
op("AddRmsNorm", "first:t second:t weight:t epsilon:d out:o deviation:o sum:o", "add_rms_norm(first, second, weight, epsilon)")
op("RotaryPositionEmbedding", "self:t cosine:t sine:t mode:i out:o", "rotary(self, cosine, sine, mode)")
op("RotaryPositionEmbeddingGrad", "gradient:t cosine:t sine:t self:t mode:i out:o ofCosine:o ofSine:o",
   "{ rotary_backward(gradient, cosine, sine, self, mode, out, ofCosine, ofSine); }")
op("SwiGlu", "self:t dim:i out:o", "swiglu(self, dim)")
op("SwiGluGrad", "gradient:t self:t dim:i out:o", "swiglu_backward(gradient, self, dim)")
op("Embedding", "weight:t indices:t out:o", "at::embedding(weight, indices.to(at::kLong))")
op("EmbeddingDenseBackward", "gradient:t indices:t count:i padding:i scales:b out:o",
   "at::embedding_dense_backward(gradient, indices.to(at::kLong), count, padding, scales)")
op("MaxPool2dWithMask", "self:t kernel:a stride:a padding:a dilation:a ceil:b out:o mask:o",
   "{ auto [values, places] = at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil); out.copy_(values); in_mask(mask, places); }")
op("MaxPool2dWithMaskBackward", "gradient:t self:t mask:t kernel:a stride:a padding:a dilation:a ceil:b out:o",
   "at::max_pool2d_with_indices_backward(gradient, self, kernel, stride, padding, dilation, ceil, of_mask(mask, gradient))")
op("MaxPool2dWithIndices", "self:t kernel:a stride:a padding:a dilation:a ceil:b out:o indices:o",
   "at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil)")
op("MaxPool2dWithIndicesBackward", "gradient:t self:t indices:t kernel:a stride:a padding:a dilation:a ceil:b out:o",
   "at::max_pool2d_with_indices_backward(gradient, self, kernel, stride, padding, dilation, ceil, indices.to(at::kLong))")
op("AvgPool2d", "self:t kernel:a stride:a padding:a ceil:b countsPadding:b divisor:i math:n out:o",
   "at::avg_pool2d(self, kernel, stride, padding, ceil, countsPadding, given(divisor))")
op("AvgPool2dBackward", "gradient:t self:t kernel:a stride:a padding:a ceil:b countsPadding:b divisor:i math:n out:o",
   "at::avg_pool2d_backward(gradient, self, kernel, stride, padding, ceil, countsPadding, given(divisor))")
op("AdaptiveAvgPool2d", "self:t size:a out:o", "at::adaptive_avg_pool2d(self, size)")
op("AdaptiveAvgPool2dBackward", "gradient:t self:t out:o", "at::_adaptive_avg_pool2d_backward(gradient, self)")
# The factors that a program gives are those of the sizes, or 0.
op("UpsampleNearest2d", "self:t size:a out:o", "at::upsample_nearest2d(self, size)")
op("UpsampleNearest2dV2", "self:t size:a height:f width:f out:o", "at::upsample_nearest2d(self, size)")
op("UpsampleNearest2dBackward", "gradient:t size:a given:a height:d width:d out:o", "at::upsample_nearest2d_backward(gradient, size, given)")

_ATTENTION = (
    "shift:t dropped:t padding:t mask:t {more} prefix:a queryLengths:a keyLengths:a queryStart:a keyStart:a scale:d keeps:d before:i after:i heads:i "
)
op("FlashAttentionScoreV4",
   "query:t key:t value:t " + _ATTENTION.format(more="queryRope:t keyRope:t scaleQ:t scaleK:t scaleV:t sink:t")
   + "layout:c precise:i sparse:i dtype:i shiftKind:i softmaxLayout:c seed:i offset:i greatest:o total:o softmax:o out:o",
   "{ attention({query, key, value, shift, mask, scale, keeps, heads, layout, sparse, queryLengths, keyLengths}, greatest, total, out); }")
op("FlashAttentionScoreGradV4",
   "query:t key:t value:t gradient:t " + _ATTENTION.format(
       more="greatest:t total:t softmax:t result:t sink:t queryRope:t keyRope:t scaleQ:t scaleK:t scaleV:t scaleG:t scaleO:t")
   + "layout:c softmaxLayout:c precise:i sparse:i shiftKind:i seed:i offset:i dtype:i ofQuery:o ofKey:o ofValue:o ofQueryRope:o ofKeyRope:o ofShift:o ofSink:o",
   "{ attention_backward({query, key, value, shift, mask, scale, keeps, heads, layout, sparse, queryLengths, keyLengths}, gradient, ofQuery, ofKey, ofValue); }")

# Losses.
op("MseLoss", "self:t target:t reduction:i out:o", "at::mse_loss(self, target, reduction)")
op("MseLossBackward", "gradient:t self:t target:t reduction:i out:o", "at::mse_loss_backward(gradient, self, target, reduction)")
op("L1Loss", "self:t target:t reduction:i out:o", "at::l1_loss(self, target, reduction)")
op("SmoothL1Loss", "self:t target:t reduction:i beta:f out:o", "at::smooth_l1_loss(self, target, reduction, beta)")
op("NLLLoss", "self:t target:t weight:t reduction:i ignored:i out:o total:o",
   "at::nll_loss_forward(self, target.to(at::kLong), optional(weight), reduction, ignored)")
op("NLLLossBackward", "gradient:t self:t target:t weight:t reduction:i ignored:i total:t out:o",
   "at::nll_loss_backward(gradient, self, target.to(at::kLong), optional(weight), reduction, ignored, total.reshape({}))")
op("BinaryCrossEntropy", "self:t target:t weight:t reduction:i out:o", "at::binary_cross_entropy(self, target, optional(weight), reduction)")
op("BinaryCrossEntropyWithLogits", "self:t target:t weight:t positive:t reduction:i out:o",
   "at::binary_cross_entropy_with_logits(self, target, optional(weight), optional(positive), reduction)")

# Places.
op("Cat", "tensors:l dim:i out:o", "at::cat(tensors, dim)")
op("Stack", "tensors:l dim:i out:o", "at::stack(tensors, dim)")
op("SplitWithSize", "self:t sizes:a dim:i out:p", "at::split_with_sizes(self, sizes, dim)")
op("SplitTensor", "self:t sections:i dim:i out:p", "at::split(self, sections, dim)")
op("Repeat", "self:t repeats:a out:o", "self.repeat(repeats)")
op("RepeatInterleave", "self:t repeats:t size:i out:o", "at::repeat_interleave(self.reshape(-1), repeats.to(at::kLong))")
op("RepeatInterleaveInt", "self:t repeats:i size:i out:o", "at::repeat_interleave(self.reshape(-1), repeats)")
op("RepeatInterleaveWithDim", "self:t repeats:t dim:i size:i out:o", "at::repeat_interleave(self, repeats.to(at::kLong), dim)")
op("RepeatInterleaveIntWithDim", "self:t repeats:i dim:i size:i out:o", "at::repeat_interleave(self, repeats, dim)")
op("Permute", "self:t dims:a out:o", "self.permute(dims)")
op("Flip", "self:t dims:a out:o", "at::flip(self, dims)")
op("Roll", "self:t shifts:a dims:a out:o", "at::roll(self, shifts, dims)")
op("ConstantPadNd", "self:t padding:a value:s out:o", "at::constant_pad_nd(self, padding, value)")
op("Triu", "self:t diagonal:i out:o", "at::triu(self, diagonal)")
op("Tril", "self:t diagonal:i out:o", "at::tril(self, diagonal)")
op("InplaceTriu", "self:u diagonal:i", "at::triu(self, diagonal)")
op("InplaceTril", "self:u diagonal:i", "at::tril(self, diagonal)")
op("Eye", "rows:i columns:i out:o", "at::eye(rows, columns, out.options())")
op("Arange", "start:s end:s step:s out:o", "at::arange(start, end, step, out.options())")
op("Range", "start:s end:s step:s out:o", "at::range(start, end, step, out.options())")
op("Linspace", "start:s end:s steps:i out:o", "at::linspace(start, end, steps, out.options())")
op("OneHot", "self:t classes:i on:t off:t axis:i out:o", "at::one_hot(self.to(at::kLong), classes)")
op("IndexSelect", "self:t dim:i index:t out:o", "at::index_select(self, dim, index.to(at::kLong))")
op("Gather", "self:t dim:i index:t out:o", "at::gather(self, dim, index.to(at::kLong))")
op("Index", "self:t indices:l out:o", "at::index(self, places(indices))")
op("IndexPutImpl", "self:u indices:l values:t accumulates:b unsafe:b",
   "at::index_put(self, places(indices), values.to(self.scalar_type()), accumulates)")
op("IndexAdd", "self:t dim:i index:t source:t alpha:s out:o", "at::index_add(self, dim, index.to(at::kLong), source, alpha)")
op("IndexAddV2", "self:t dim:i index:t source:t alpha:s mode:i out:o", "at::index_add(self, dim, index.to(at::kLong), source, alpha)")
op("IndexCopy", "self:t dim:i index:t source:t out:o", "at::index_copy(self, dim, index.to(at::kLong), source)")
op("InplaceIndexCopy", "self:u dim:i index:t source:t", "at::index_copy(self, dim, index.to(at::kLong), source)")
op("Scatter", "self:t dim:i index:t source:t reduction:i out:o", "scatter(self, dim, index, source, reduction)")
op("InplaceScatter", "self:u dim:i index:t source:t reduction:i", "scatter(self, dim, index, source, reduction)")
op("ScatterValue", "self:t dim:i index:t value:s reduction:i out:o", "scatter(self, dim, index, value, reduction)")
op("InplaceScatterValue", "self:u dim:i index:t value:s reduction:i", "scatter(self, dim, index, value, reduction)")
op("ScatterAdd", "self:t dim:i index:t source:t out:o", "at::scatter_add(self, dim, index.to(at::kLong), source)")
op("MaskedScatter", "self:t mask:t source:t out:o", "at::masked_scatter(self, mask.to(at::kBool), source)")
op("InplaceMaskedScatter", "self:u mask:t source:t", "at::masked_scatter(self, mask.to(at::kBool), source)")
op("MaskedSelect", "self:t mask:t out:g", "{ grow(out_, at::masked_select(self, mask.to(at::kBool))); }")
op("Nonzero", "self:t out:g", "{ grow(out_, at::nonzero(self)); }")
op("NonzeroV2", "self:t out:g", "{ grow(out_, at::nonzero(self).t()); }")
op("Unique2", "self:t sorted:b inverse:b counts:b out:g places_:g numbers:g", "{ unique(self, sorted, inverse, counts, out_, places_, numbers_); }")
op("Searchsorted", "sorted:t self:t int32:b right:b sorter:t out:o", "at::searchsorted(sorted, self, int32, right)")

# Random numbers.
op("InplaceNormal", "self:u mean_:f deviation:f seed:i offset:i", "{ self.normal_(mean_, deviation, generator(seed, offset)); }")
op("InplaceUniform", "self:u least:d greatest:d seed:i offset:i", "{ self.uniform_(least, greatest, generator(seed, offset)); }")
op("InplaceRandom", "self:u least:i greatest:i seed:i offset:i", "{ self.random_(least, greatest, generator(seed, offset)); }")
op("InplaceBernoulli", "self:u p:s seed:i offset:i", "{ self.bernoulli_(p.toDouble(), generator(seed, offset)); }")
op("InplaceBernoulliTensor", "self:u p:t seed:i offset:i", "{ self.bernoulli_(p, generator(seed, offset)); }")
op("Randperm", "count:i seed:i offset:i out:o", "at::randperm(count, generator(seed, offset), out.options())")
op("Multinomial", "self:t count:i replaces:b seed:i offset:i out:o", "at::multinomial(self, count, replaces, generator(seed, offset))")
op("DropoutGenMask", "shape:a p:d seed:i offset:i out:o", "{ dropout_mask(out, shape, p, generator(seed, offset)); }")
op("DropoutGenMaskV2", "shape:a p:d seed:i offset:i dtype:y out:o", "{ dropout_mask(out, shape, p, generator(seed, offset)); }")
op("DropoutDoMask", "self:t mask:t p:d out:o", "dropout(self, mask, p)")

# Lists of tensors.
for _name in "Add Sub Mul Div".split():
    _function = f"at::_foreach_{_name.lower()}"
    for _version in ("", "V2"):
        _number = "tensor" if not _version else "s"
        op(f"Foreach{_name}Scalar{_version}", f"self:l other:{'t' if not _version else 's'} out:p",
           f"{_function}(self, {'other.item()' if not _version else 'other'})")
    op(f"Foreach{_name}ScalarList", "self:l others:S out:p", f"{_function}(self, others)")
    if _name in ("Add", "Sub"):
        op(f"Foreach{_name}List", "self:l others:l alpha:t out:p", f"{_function}(self, others, alpha.item())")
        op(f"Foreach{_name}ListV2", "self:l others:l alpha:s out:p", f"{_function}(self, others, alpha)")
    else:
        op(f"Foreach{_name}List", "self:l others:l out:p", f"{_function}(self, others)")
for _name in "Abs Neg Exp Log Log2 Sqrt Reciprocal Sign Sigmoid Tanh Expm1 Erf Cos Sin".split():
    op(f"Foreach{_name}", "self:l out:p", f"at::_foreach_{_name.lower()}(self)")
op("ForeachCopy", "self:l out:p", "self")
op("ForeachZeroInplace", "self:w", "{ for (auto &each : self) each.zero_(); }")
for _name in "Maximum Minimum".split():
    op(f"Foreach{_name}List", "self:l others:l out:p", f"at::_foreach_{_name.lower()}(self, others)")
    op(f"Foreach{_name}ScalarV2", "self:l other:s out:p", f"at::_foreach_{_name.lower()}(self, other)")
for _name in "Addcmul Addcdiv".split():
    op(f"Foreach{_name}ScalarV2", "self:l first:l second:l value:s out:p", f"at::_foreach_{_name.lower()}(self, first, second, value)")
    op(f"Foreach{_name}ScalarList", "self:l first:l second:l values:S out:p", f"at::_foreach_{_name.lower()}(self, first, second, values)")
    op(f"Foreach{_name}List", "self:l first:l second:l values:t out:p", f"at::_foreach_{_name.lower()}(self, first, second, values)")
op("ForeachLerpScalar", "self:l end:l weight:s out:p", "at::_foreach_lerp(self, end, weight)")
op("ForeachLerpList", "self:l end:l weights:l out:p", "at::_foreach_lerp(self, end, weights)")
op("ForeachPowScalarV2", "self:l exponent:s out:p", "at::_foreach_pow(self, exponent)")
op("ForeachPowScalarAndTensor", "base:s exponents:l out:p", "at::_foreach_pow(base, exponents)")
op("ForeachNorm", "self:l p:s out:p", "at::_foreach_norm(self, p)")
op("ForeachNonFiniteCheckAndUnscale", "gradients:w found:u inverse:t",
   "{ at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse); }")
op("ApplyAdamWV2", "weight:u first:u second:u greatest:u gradient:t step:t rate:f beta1:f beta2:f decay:f epsilon:f amsgrad:b maximizes:b",
   "{ adamw(weight, first, second, greatest, gradient, step, rate, beta1, beta2, decay, epsilon, amsgrad, maximizes); }")
op("AmpUpdateScale", "scale:t tracker:t found:t growth:d backoff:d interval:i newScale:o newTracker:o",
   "{ newScale.copy_(scale); newTracker.copy_(tracker); at::_amp_update_scale_(newScale, newTracker, found, growth, backoff, interval); }")
