#include "parts.h"

#include <cmath>

namespace ascend_sim {

void grow(aclTensor *handle, const at::Tensor &result) {
    if (handle == nullptr || handle->data == nullptr) return;
    int64_t room = 1;
    for (const auto size : handle->sizes) room *= size;
    TORCH_CHECK(result.numel() <= room, "the result has ", result.numel(), " elements, there is room for ", room);
    handle->sizes = result.sizes().vec();
    handle->strides = result.contiguous().strides().vec();
    memory_of(hold(handle)).copy_(result);
}

void unique(const at::Tensor &self, bool sorted, bool inverse, bool counts, aclTensor *values, aclTensor *places, aclTensor *numbers) {
    const auto [found, where, number] = at::_unique2(self, sorted, inverse, counts);
    grow(values, found);
    if (inverse) grow(places, where);
    if (counts) grow(numbers, number);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(const at::Tensor &gradient, const at::Tensor &input, at::IntArrayRef shape, const at::Tensor &mean,
                                                                   const at::Tensor &deviation, const at::Tensor &weight, const at::Tensor &bias, std::array<bool, 3> mask) {
    auto common = input.scalar_type();
    bool mixed = false;
    for (const auto &tensor : {gradient, weight, mean}) {
        if (!tensor.defined()) continue;
        mixed = mixed || tensor.scalar_type() != input.scalar_type();
        common = at::promote_types(common, tensor.scalar_type());
    }
    const auto like = [&](const at::Tensor &tensor) { return tensor.defined() && mixed ? tensor.to(common) : tensor; };
    return at::native_layer_norm_backward(like(gradient), like(input), shape, like(mean), like(deviation), optional(like(weight)), optional(like(bias)), mask);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor &input, const std::optional<at::Tensor> &weight, const std::optional<at::Tensor> &bias,
                                                          const at::Tensor &mean, const at::Tensor &variance, bool training, double momentum, double epsilon) {
    const auto like_input = [&](const at::Tensor &running) {
        const bool same = !running.defined() || input.scalar_type() != at::kDouble;
        return optional(same ? running : running.to(at::kDouble));
    };
    const auto means = like_input(mean), variances = like_input(variance);
    auto results = at::native_batch_norm(input, weight, bias, means, variances, training, momentum, epsilon);
    if (training && means && variances && !means->is_same(mean)) {
        mean.copy_(*means);
        variance.copy_(*variances);
    }
    return results;
}

void in_mask(const at::Tensor &mask, const at::Tensor &places) {
    // As many bytes as there are: the caller asks for about one bit for each element of each window, and four bytes a place may be more.
    const auto bytes = places.to(at::kInt).contiguous().view(-1).view(at::kChar);
    auto flat = mask.view(at::kChar).view(-1);
    TORCH_CHECK(flat.numel() >= bytes.numel(), "the mask has no room for the places");
    flat.narrow(0, 0, bytes.numel()).copy_(bytes);
}

at::Tensor of_mask(const at::Tensor &mask, const at::Tensor &gradient) {
    const auto bytes = mask.view(at::kChar).view(-1).narrow(0, 0, gradient.numel() * 4).clone();
    return bytes.view(at::kInt).to(at::kLong).view(gradient.sizes());
}

void dropout_mask(const at::Tensor &mask, at::IntArrayRef shape, double p, const at::Generator &generator) {
    const auto count = c10::multiply_integers(shape);
    auto bytes = mask.view(at::kByte).view(-1);
    bytes.zero_();
    const auto keeps = at::empty({count}, at::kFloat).bernoulli_(1 - p, generator).to(at::kByte);
    for (int64_t bit = 0; bit < 8 && bit < count; bit++) {
        const auto of_bit = keeps.slice(0, bit, count, 8);
        bytes.narrow(0, 0, of_bit.numel()).bitwise_or_(of_bit.mul(1 << bit));
    }
}

at::Tensor dropout(const at::Tensor &self, const at::Tensor &mask, double p) {
    const auto bytes = mask.view(at::kByte).view(-1);
    auto keeps = at::empty({bytes.numel(), 8}, at::kByte);
    for (int64_t bit = 0; bit < 8; bit++) keeps.select(1, bit).copy_(bytes.bitwise_right_shift(bit).bitwise_and(1));
    const auto kept = keeps.view(-1).narrow(0, 0, self.numel()).view(self.sizes()).to(at::kBool);
    return at::where(kept, self / (1 - p), at::zeros({}, self.options()));
}

void adamw(at::Tensor &weight, at::Tensor &first, at::Tensor &second, at::Tensor &greatest, const at::Tensor &gradient, const at::Tensor &step,
           double rate, double beta1, double beta2, double decay, double epsilon, bool amsgrad, bool maximizes) {
    const auto slope = maximizes ? gradient.neg() : gradient;
    // Steps are counted from 0 here.
    const double steps = step.to(at::kDouble).reshape(-1)[0].item<double>() + 1;
    weight.mul_(1 - rate * decay);
    first.lerp_(slope, 1 - beta1);
    second.mul_(beta2).addcmul_(slope, slope, 1 - beta2);
    auto moment = second;
    if (amsgrad) moment = greatest.copy_(at::maximum(greatest, second));
    const auto size = moment.sqrt().div_(std::sqrt(1 - std::pow(beta2, steps))).add_(epsilon);
    weight.addcdiv_(first, size, -rate / (1 - std::pow(beta1, steps)));
}

}  // namespace ascend_sim
