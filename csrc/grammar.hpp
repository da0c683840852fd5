// A GBNF grammar at one point of a text: which tokens may come next.
// Owns llama.cpp's grammar sampler and its guards; leaves choosing among the allowed tokens to the sampler.
#pragma once

#include <memory>
#include <string>

#include "llama.h"

namespace pyspec {

struct SamplerFree {
    void operator()(llama_sampler * sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerFree>;

class Grammar {
public:
    // Throws GrammarError, VocabularyMissingError. `vocab` must outlive it.
    Grammar(const std::string & text, const std::string & root, const llama_vocab * vocab);
    Grammar(const Grammar & other);
    Grammar & operator=(const Grammar &) = delete;

    // Sets the logits of the candidates that may not come next to -infinity.
    void mask(llama_token_data * candidates, size_t n_candidates) const;
    bool allows(llama_token token) const;
    // Throws GrammarError for a forbidden token; nothing is changed then.
    void accept(llama_token token);
    void reset();

private:
    void check_alive() const;

    const llama_vocab * vocab_;
    SamplerPtr sampler_;
    bool lost_ = false;
};

}  // namespace pyspec
