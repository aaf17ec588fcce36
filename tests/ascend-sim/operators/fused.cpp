// Operators that training frameworks for NPUs put in the place of several of torch's.

#include "parts.h"

namespace ascend_sim {
namespace {

/// Ways in which the elements of a head are paired for a rotation: `i` with `i + width / 2`, or neighbours.
constexpr int64_t HALVES = 0, NEIGHBOURS = 1;

/// The type that is computed in.
at::Tensor wide(const at::Tensor &tensor) { return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat); }

/// A quarter turn of each pair: the first of it becomes the negative of the second, the second the first.
at::Tensor quarter_turn(const at::Tensor &tensor, int64_t mode) {
    if (mode == HALVES) {
        const auto halves = tensor.chunk(2, -1);
        return at::cat({halves[1].neg(), halves[0]}, -1);
    }
    TORCH_CHECK(mode == NEIGHBOURS, "rotations of mode ", mode, " are not simulated");
    const auto pairs = tensor.unflatten(-1, {-1, 2});
    return at::stack({pairs.select(-1, 1).neg(), pairs.select(-1, 0)}, -1).flatten(-2);
}

/// Sums of what was broadcast to the size of `like`.
at::Tensor summed_to(const at::Tensor &tensor, const at::Tensor &like) { return at::sum_to(tensor, like.sizes()); }

}  // namespace

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor &input, const at::Tensor &weight, double epsilon) {
    const auto values = wide(input);
    const auto deviation = at::rsqrt(values.square().mean(-1, true).add(epsilon));
    return {values.mul(deviation).mul(wide(weight)), deviation};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor &gradient, const at::Tensor &input, const at::Tensor &deviation, const at::Tensor &weight) {
    const auto slope = wide(gradient), normal = wide(input).mul(deviation);
    const auto weighted = slope.mul(wide(weight));
    const auto of_input = weighted.sub(normal.mul(weighted.mul(normal).mean(-1, true))).mul(deviation);
    return {of_input, summed_to(slope.mul(normal), weight)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm(const at::Tensor &first, const at::Tensor &second, const at::Tensor &weight, double epsilon) {
    const auto sum = at::add(first, second);
    const auto [out, deviation] = rms_norm(sum, weight, epsilon);
    return {out, deviation, sum};
}

at::Tensor rotary(const at::Tensor &self, const at::Tensor &cosine, const at::Tensor &sine, int64_t mode) {
    const auto values = wide(self);
    return values.mul(wide(cosine)).add(quarter_turn(values, mode).mul(wide(sine)));
}

void rotary_backward(const at::Tensor &gradient, const at::Tensor &cosine, const at::Tensor &sine, const at::Tensor &self, int64_t mode, const at::Tensor &out,
                     const at::Tensor &of_cosine, const at::Tensor &of_sine) {
    const auto slope = wide(gradient);
    // A quarter turn back.
    out.copy_(slope.mul(wide(cosine)).sub(quarter_turn(slope.mul(wide(sine)), mode)));
    if (!self.defined() || self.numel() == 0) return;
    const auto values = wide(self);
    if (of_cosine.defined() && of_cosine.numel() > 0) of_cosine.copy_(summed_to(slope.mul(values), cosine));
    if (of_sine.defined() && of_sine.numel() > 0) of_sine.copy_(summed_to(slope.mul(quarter_turn(values, mode)), sine));
}

at::Tensor swiglu(const at::Tensor &self, int64_t dim) {
    const auto halves = wide(self).chunk(2, dim);
    return at::silu(halves[0]).mul(halves[1]);
}

at::Tensor swiglu_backward(const at::Tensor &gradient, const at::Tensor &self, int64_t dim) {
    const auto halves = wide(self).chunk(2, dim);
    const auto slope = wide(gradient);
    return at::cat({at::silu_backward(slope.mul(halves[1]), halves[0]), slope.mul(at::silu(halves[0]))}, dim);
}

at::Tensor scaled_masked_softmax(const at::Tensor &self, const at::Tensor &mask, double scale, bool is_triangle) {
    const auto hidden = is_triangle ? at::ones({self.size(-2), self.size(-1)}, at::kBool).triu(1) : mask.to(at::kBool);
    return at::softmax(wide(self).mul(scale).masked_fill(hidden, -10000.0), -1);
}

at::Tensor scaled_masked_softmax_backward(const at::Tensor &gradient, const at::Tensor &result, const at::Tensor &mask, double scale) {
    const auto values = wide(result), slope = wide(gradient);
    auto of_scores = values.mul(slope.sub(slope.mul(values).sum(-1, true)));
    if (mask.defined() && mask.numel() > 0) of_scores = of_scores.masked_fill(mask.to(at::kBool), 0.0);
    return of_scores.mul(scale);
}

}  // namespace ascend_sim
