// Chooses the next token from an output row: the chain, the grammar, the random numbers, and their state.
// Owns the rule of one draw per choice; leaves logits to the context and what follows a choice to the caller.
// sample() changes nothing but the position in the stream of random numbers; accept() changes everything else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "chain.hpp"
#include "context.hpp"
#include "grammar.hpp"
#include "llama.h"
#include "model.hpp"
#include "sampler_options.hpp"

namespace pyspec {

// Bit i of word i / 32 says whether token i may be chosen, [(n_vocab + 31) / 32]; null where every token may.
using TokenMask = const uint32_t *;

class Sampler {
public:
    struct Distribution {
        std::vector<llama_token> tokens;
        std::vector<float> probabilities;
    };

    // Throws what SamplerOptions::check, Chain and Grammar throw, and ClosedError.
    Sampler(const Model & model, const SamplerOptions & options);
    Sampler & operator=(const Sampler &) = delete;

    uint32_t seed() const { return seed_; }
    std::vector<std::string> names() const;
    bool is_greedy() const { return is_greedy_; }

    // Without the GIL; throws BusyError when another thread is inside this sampler or the context. `mask` forbids as
    // the grammar does. `again` chooses with the random numbers of the call before, of which nothing was accepted;
    // throws SamplerError where there was none.
    llama_token sample(Context & context, int64_t row, TokenMask mask = nullptr, bool again = false);
    // The law that sample() draws from, most likely first; draws nothing.
    Distribution distribution(Context & context, int64_t row, TokenMask mask = nullptr);
    size_t n_mask_words() const { return (static_cast<size_t>(chain_.n_vocab()) + 31) / 32; }
    // `prompt` tokens count for penalties and DRY only. Throws TokenRangeError, GrammarError; nothing is changed then.
    void accept(int64_t token, bool prompt);
    void reset();
    std::unique_ptr<Sampler> clone();

private:
    class Use {
    public:
        explicit Use(Sampler & sampler);
        ~Use() { sampler_.busy_.store(false, std::memory_order_release); }
        Use(const Use &) = delete;
        Use & operator=(const Use &) = delete;

    private:
        Sampler & sampler_;
    };

    Sampler(const Sampler & other);

    const float * row_of(Context & context, int64_t row) const;
    bool allows(llama_token token, TokenMask mask) const;
    llama_token choose_greedy(const float * logits, TokenMask mask);
    llama_token choose(const float * logits, TokenMask mask, bool again);
    void add_law(const float * logits, bool exclude_top_choices, double share, TokenMask mask,
                 std::vector<double> & law);
    // Reduces the loaded candidates to those that the mask and the grammar allow.
    void constrain(TokenMask mask);
    void constrain_by_grammar();
    void draw_numbers(bool again);
    double draw();

    std::shared_ptr<llama_model> model_;
    SamplerOptions options_;
    uint32_t seed_;
    Chain chain_;
    std::optional<Grammar> grammar_;
    bool is_greedy_;

    std::mt19937 rng_;
    std::mt19937 xtc_rng_;
    // Drawn for the token that is being chosen.
    std::optional<double> u_;
    bool exclude_ = false;
    double mu_;  // mirostat's bound, in bits
    llama_token chosen_ = -1;
    double chosen_mu_ = 0.0;
    std::atomic<bool> busy_{false};
};

}  // namespace pyspec
