// Attention with its softmax, in one operator.

#include "parts.h"

#include <limits>

namespace ascend_sim {
namespace {

/// Kinds of masks that are not, or not only, given as one.
constexpr int64_t LEFT_UP_CAUSAL = 2, RIGHT_DOWN_CAUSAL = 3;

/// Batch, heads, places, width: in the type that is computed in.
at::Tensor in_heads(const at::Tensor &tensor, const Attention &given) {
    const auto wide = tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat);
    if (given.layout == "BNSD") return wide;
    if (given.layout == "BSND") return wide.transpose(1, 2);
    const auto width = given.query.size(-1) / given.heads;
    if (given.layout == "BSH") return wide.unflatten(-1, {-1, width}).transpose(1, 2);
    if (given.layout == "SBH") return wide.unflatten(-1, {-1, width}).permute({1, 2, 0, 3});
    TORCH_CHECK(false, "the layout ", given.layout, " is not simulated");
}

at::Tensor from_heads(const at::Tensor &tensor, const std::string &layout) {
    if (layout == "BNSD") return tensor;
    if (layout == "BSND") return tensor.transpose(1, 2);
    if (layout == "BSH") return tensor.transpose(1, 2).flatten(-2);
    return tensor.permute({2, 0, 1, 3}).flatten(-2);
}

struct Parts {
    at::Tensor query, key, value, scores, weights;
    /// Heads of the query for each of the key.
    int64_t groups;
};

Parts parts_of(const Attention &given) {
    TORCH_CHECK(given.keeps == 1.0, "attention with dropout is not simulated");
    Parts parts{in_heads(given.query, given), in_heads(given.key, given), in_heads(given.value, given), {}, {}, 1};
    parts.groups = parts.query.size(1) / parts.key.size(1);
    if (parts.groups > 1) {
        parts.key = parts.key.repeat_interleave(parts.groups, 1);
        parts.value = parts.value.repeat_interleave(parts.groups, 1);
    }
    parts.scores = product(parts.query, parts.key.transpose(-1, -2), 0).mul(given.scale);
    if (given.shift.defined() && given.shift.numel() > 0) parts.scores = parts.scores.add(given.shift);
    const auto rows = parts.scores.size(-2), columns = parts.scores.size(-1);
    at::Tensor hidden;
    if (given.sparse == LEFT_UP_CAUSAL || given.sparse == RIGHT_DOWN_CAUSAL) {
        hidden = at::ones({rows, columns}, at::kBool).triu(given.sparse == LEFT_UP_CAUSAL ? 1 : columns - rows + 1);
    } else if (given.mask.defined() && given.mask.numel() > 0) {
        hidden = given.mask.to(at::kBool);
    }
    if (hidden.defined()) parts.scores = parts.scores.masked_fill(hidden, -std::numeric_limits<float>::max());
    parts.weights = at::softmax(parts.scores, -1);
    return parts;
}

/// Calls `act` with each sequence of the layout `TND` as a batch of one, and the range of its queries and of its keys.
template <class Act>
void for_each_sequence(const Attention &given, const Act &act) {
    TORCH_CHECK(given.query_ends.size() == given.key_ends.size(), "as many sequences of queries as of keys");
    int64_t query_start = 0, key_start = 0;
    for (size_t index = 0; index < given.query_ends.size(); index++) {
        const at::indexing::Slice queries(query_start, given.query_ends[index]), keys(key_start, given.key_ends[index]);
        const auto of = [](const at::Tensor &tensor, const at::indexing::Slice &range) { return tensor.index({range}).unsqueeze(0); };
        auto one = given;
        one.query = of(given.query, queries), one.key = of(given.key, keys), one.value = of(given.value, keys);
        one.layout = "BSND";
        act(one, queries, keys);
        query_start = given.query_ends[index], key_start = given.key_ends[index];
    }
}

}  // namespace

void attention(const Attention &given, const at::Tensor &greatest, const at::Tensor &total, const at::Tensor &out) {
    if (given.layout == "TND") {
        for_each_sequence(given, [&](const Attention &one, const auto &queries, const auto &) {
            // Heads come behind the places here, as in the result.
            const auto turned = [&](const at::Tensor &tensor) { return tensor.defined() && tensor.numel() > 0 ? tensor.index({queries}).transpose(0, 1).unsqueeze(0) : tensor; };
            attention(one, turned(greatest), turned(total), out.index({queries}).unsqueeze(0));
        });
        return;
    }
    const auto parts = parts_of(given);
    const auto most = parts.scores.amax(-1, true);
    if (greatest.defined() && greatest.numel() > 0) greatest.copy_(most.expand(greatest.sizes()));
    if (total.defined() && total.numel() > 0) total.copy_(parts.scores.sub(most).exp().sum(-1, true).expand(total.sizes()));
    out.copy_(from_heads(product(parts.weights, parts.value, 0), given.layout));
}

void attention_backward(const Attention &given, const at::Tensor &gradient, const at::Tensor &of_query, const at::Tensor &of_key, const at::Tensor &of_value) {
    if (given.layout == "TND") {
        for_each_sequence(given, [&](const Attention &one, const auto &queries, const auto &keys) {
            const auto of = [](const at::Tensor &tensor, const auto &range) { return tensor.index({range}).unsqueeze(0); };
            attention_backward(one, of(gradient, queries), of(of_query, queries), of(of_key, keys), of(of_value, keys));
        });
        return;
    }
    const auto parts = parts_of(given);
    const auto of_out = in_heads(gradient, given);
    const auto of_weights = product(of_out, parts.value.transpose(-1, -2), 0);
    const auto of_scores = parts.weights.mul(of_weights.sub(of_weights.mul(parts.weights).sum(-1, true))).mul(given.scale);
    const auto of_own = [&](at::Tensor tensor) {
        if (parts.groups > 1) tensor = tensor.unflatten(1, {-1, parts.groups}).sum(2);
        return from_heads(tensor, given.layout);
    };
    of_query.copy_(from_heads(product(of_scores, parts.key, 0), given.layout));
    of_key.copy_(of_own(product(of_scores.transpose(-1, -2), parts.query, 0)));
    of_value.copy_(of_own(product(parts.weights.transpose(-1, -2), of_out, 0)));
}

}  // namespace ascend_sim
