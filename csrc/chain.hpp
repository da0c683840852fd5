// The candidates for one token and the steps that reweigh and cut them, in llama.cpp's default order:
// logit bias, penalties, DRY, then top-k, typical, top-p, min-p, XTC and temperature, or temperature and mirostat.
// Owns no randomness and no grammar: the sampler gives the one and asks the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar.hpp"
#include "llama.h"
#include "sampler_options.hpp"

namespace pyspec {

// How often each of the last n accepted tokens occurred; grows as needed, so a huge n costs nothing until it is filled.
class TokenWindow {
public:
    explicit TokenWindow(int64_t n_max) : n_max_(static_cast<size_t>(n_max)) {}
    void push(llama_token token);
    void clear();
    const std::unordered_map<llama_token, int> & counts() const { return counts_; }

private:
    size_t n_max_;
    std::deque<llama_token> tokens_;
    std::unordered_map<llama_token, int> counts_;
};

class Chain {
public:
    // The interval of a choice within [0, sum of weights).
    struct Pick {
        size_t index;
        double low;
        double high;
    };

    // `vocab` must outlive it. Throws VocabularyMissingError for DRY breakers without text.
    Chain(const SamplerOptions & options, const llama_vocab * vocab);
    Chain(const Chain & other);
    Chain & operator=(const Chain &) = delete;

    // True when nothing here can change which token has the largest logit.
    bool keeps_argmax() const { return bias_.empty() && !options_.has_penalties() && !options_.has_dry(); }
    int n_vocab() const { return n_vocab_; }
    std::vector<std::string> names() const;

    // Throws SamplerError for logits with NaN or +infinity.
    static void check_defined(bool defined);
    // All tokens with their logits after bias, penalties and DRY; checked.
    void load(const float * logits);
    // How many of the best allowed candidates decide everything that follows load().
    size_t n_decisive() const;
    // Brings the `n` best candidates to the front, best first.
    void sort_front(size_t n);
    // Forgets all but the first `n`, which sort_front() put there.
    void keep_front(size_t n);
    // Drops candidates with a logit of -infinity; throws SamplerError when none is left.
    void drop_forbidden();
    // Drops candidates that `allowed(token)` says no to; throws SamplerError when none is left.
    template <typename Allowed>
    void keep_if(Allowed allowed) {
        const auto forbidden = [&allowed](const llama_token_data & token) { return !allowed(token.id); };
        array_.size = std::remove_if(array_.data, array_.data + array_.size, forbidden) - array_.data;
        check_not_empty();
    }
    // Cuts to the candidates that may be chosen and leaves their weights in `p`. `mu` is mirostat's.
    void truncate(double mu, bool exclude_top_choices);

    // Largest logit, the smallest id among equals.
    llama_token best() const;
    // The candidate at `u` in [0, 1) of the weights.
    Pick pick(double u) const;
    // Sum of the weights after truncate().
    double total() const { return total_; }

    llama_token_data * data() { return array_.data; }
    const llama_token_data & operator[](size_t i) const { return array_.data[i]; }
    size_t size() const { return array_.size; }

    void accept(llama_token token);
    void reset();

private:
    void check_not_empty() const;
    void add(llama_sampler * sampler) { truncating_.emplace_back(sampler); }
    void apply(const SamplerPtr & sampler);
    void sort();
    void shift();
    void drop_below(float logit);
    void weigh();
    void exclude_top_choices();
    void cut_mirostat(double mu);

    SamplerOptions options_;
    int n_vocab_;
    std::vector<llama_logit_bias> bias_;
    bool bias_forbids_ = false;
    TokenWindow window_;
    SamplerPtr dry_;
    std::vector<SamplerPtr> truncating_;
    size_t typical_ = SIZE_MAX;  // its place among them
    SamplerPtr temperature_;
    SamplerPtr sort_;

    std::vector<llama_token_data> candidates_;
    llama_token_data_array array_ = {nullptr, 0, -1, false};
    double total_ = 0.0;
};

}  // namespace pyspec
