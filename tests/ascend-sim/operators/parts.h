// Parts of operators that do not fit into an expression of the table.
#pragma once

#include "launch.h"

#include <optional>

namespace ascend_sim {

inline std::optional<at::Tensor> optional(const at::Tensor &tensor) {
    return tensor.defined() && tensor.numel() > 0 ? std::optional(tensor) : std::nullopt;
}

inline std::optional<int64_t> given(int64_t number) { return number != 0 ? std::optional(number) : std::nullopt; }

/// The masks of gradients are arrays of three.
inline std::array<bool, 3> three(const std::vector<char> &mask) {
    std::array<bool, 3> wanted{true, true, true};
    for (size_t index = 0; index < mask.size() && index < 3; index++) wanted[index] = mask[index] != 0;
    return wanted;
}

/// A tensor in the type of the result, where that is given and the tensor is not to be rounded.
inline at::Tensor to(const at::Tensor &tensor, int dtype) {
    const auto wanted = dtype_of(dtype);
    return tensor.scalar_type() == at::kDouble && at::isFloatingType(wanted) ? tensor : tensor.to(wanted);
}

inline std::optional<c10::string_view> rounding(int64_t mode) {
    if (mode == 1) return c10::string_view("trunc");
    if (mode == 2) return c10::string_view("floor");
    return std::nullopt;
}

inline c10::List<std::optional<at::Tensor>> places(const std::vector<at::Tensor> &indices) {
    c10::List<std::optional<at::Tensor>> places;
    for (const auto &index : indices) {
        const bool absent = !index.defined() || (index.numel() == 0 && index.dim() == 1 && indices.size() > 1);
        const bool integer = !absent && index.scalar_type() != at::kBool && index.scalar_type() != at::kByte;
        places.push_back(absent ? std::optional<at::Tensor>() : integer ? index.to(at::kLong) : index.to(at::kBool));
    }
    return places;
}

/// `aclnnScatter` takes the way to combine as a number: 0 replaces, 1 adds, 2 multiplies.
template <class Source>
at::Tensor scatter(const at::Tensor &self, int64_t dim, const at::Tensor &index, const Source &source, int64_t reduction) {
    const auto at = index.to(at::kLong);
    if (reduction == 0) return at::scatter(self, dim, at, source);
    return at::scatter(self, dim, at, source, reduction == 1 ? "add" : "multiply");
}

/// Results and what the backward pass is given of them.
std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor &input, const at::Tensor &weight, double epsilon);
std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor &gradient, const at::Tensor &input, const at::Tensor &deviation, const at::Tensor &weight);
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm(const at::Tensor &first, const at::Tensor &second, const at::Tensor &weight, double epsilon);
at::Tensor rotary(const at::Tensor &self, const at::Tensor &cosine, const at::Tensor &sine, int64_t mode);
void rotary_backward(const at::Tensor &gradient, const at::Tensor &cosine, const at::Tensor &sine, const at::Tensor &self, int64_t mode, const at::Tensor &out,
                     const at::Tensor &of_cosine, const at::Tensor &of_sine);
at::Tensor swiglu(const at::Tensor &self, int64_t dim);
at::Tensor swiglu_backward(const at::Tensor &gradient, const at::Tensor &self, int64_t dim);
/// Ones of the mask are left out; of a triangle what lies above the diagonal.
at::Tensor scaled_masked_softmax(const at::Tensor &self, const at::Tensor &mask, double scale, bool is_triangle);
at::Tensor scaled_masked_softmax_backward(const at::Tensor &gradient, const at::Tensor &result, const at::Tensor &mask, double scale);

/// Writes a result whose size the caller asks for afterwards, through the handle.
void grow(aclTensor *handle, const at::Tensor &result);
void unique(const at::Tensor &self, bool sorted, bool inverse, bool counts, aclTensor *values, aclTensor *places, aclTensor *numbers);

/// Running statistics are updated in their own type, whatever is computed with.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor &input, const std::optional<at::Tensor> &weight, const std::optional<at::Tensor> &bias,
                                                          const at::Tensor &mean, const at::Tensor &variance, bool training, double momentum, double epsilon);

/// Places of maxima go through a tensor of bytes that only the two operators of the pooling read.
void in_mask(const at::Tensor &mask, const at::Tensor &places);
at::Tensor of_mask(const at::Tensor &mask, const at::Tensor &gradient);

/// Autocast mixes types here, which the kernels of the host do not take.
std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_backward(const at::Tensor &gradient, const at::Tensor &input, at::IntArrayRef shape, const at::Tensor &mean,
                                                                   const at::Tensor &deviation, const at::Tensor &weight, const at::Tensor &bias, std::array<bool, 3> mask);

/// What attention is computed from. In masks, ones stand for what is left out.
struct Attention {
    at::Tensor query, key, value, shift, mask;
    double scale, keeps;
    int64_t heads;
    std::string layout;
    int64_t sparse;
    /// Of the layout `TND`, where sequences follow one another: where each of them ends, of queries and of keys.
    std::vector<int64_t> query_ends, key_ends;
};
void attention(const Attention &given, const at::Tensor &greatest, const at::Tensor &total, const at::Tensor &out);
void attention_backward(const Attention &given, const at::Tensor &gradient, const at::Tensor &of_query, const at::Tensor &of_key, const at::Tensor &of_value);

/// A mask of bits, eight to a byte.
void dropout_mask(const at::Tensor &mask, at::IntArrayRef shape, double p, const at::Generator &generator);
at::Tensor dropout(const at::Tensor &self, const at::Tensor &mask, double p);

void adamw(at::Tensor &weight, at::Tensor &first, at::Tensor &second, at::Tensor &greatest, const at::Tensor &gradient, const at::Tensor &step,
           double rate, double beta1, double beta2, double decay, double epsilon, bool amsgrad, bool maximizes);

}  // namespace ascend_sim
