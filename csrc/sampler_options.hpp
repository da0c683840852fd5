// What a sampler is built from: plain values, checked once.
// Owns the ranges that keep llama.cpp's samplers inside defined arithmetic and memory; reading them from Python is
// bind_sampler.cpp, their meaning is in pyspec/config.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pyspec {

struct SamplerOptions {
    std::optional<int64_t> seed;
    double temperature = 0.0;
    double dynatemp_range = 0.0;
    double dynatemp_exponent = 1.0;
    int64_t top_k = 40;
    double top_p = 0.95;
    double min_p = 0.05;
    double typical_p = 1.0;
    double xtc_probability = 0.0;
    double xtc_threshold = 0.1;
    int64_t mirostat = 0;
    double mirostat_tau = 5.0;
    double mirostat_eta = 0.1;
    int64_t penalty_last_n = 64;
    double repeat_penalty = 1.0;
    double frequency_penalty = 0.0;
    double presence_penalty = 0.0;
    double dry_multiplier = 0.0;
    double dry_base = 1.75;
    int64_t dry_allowed_length = 2;
    int64_t dry_penalty_last_n = 4096;
    std::vector<std::string> dry_sequence_breakers;
    std::vector<std::pair<int64_t, double>> logit_bias;
    std::optional<std::string> grammar;
    std::string grammar_root = "root";
    int64_t min_keep = 1;

    bool greedy() const { return temperature <= 0.0; }
    bool has_penalties() const {
        return penalty_last_n > 0 && (repeat_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0);
    }
    bool has_dry() const { return dry_multiplier > 0.0 && dry_base >= 1.0 && dry_penalty_last_n > 0; }
    bool has_xtc() const { return xtc_probability > 0.0 && xtc_threshold <= 0.5; }

    // Throws InvalidValueError for the first value outside its range, TokenRangeError for a bias outside the
    // vocabulary.
    void check(int n_vocab) const;
};

}  // namespace pyspec
