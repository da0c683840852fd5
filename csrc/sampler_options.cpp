#include "sampler_options.hpp"

#include <cmath>
#include <limits>

#include "errors.hpp"

namespace pyspec {

namespace {

constexpr int64_t int32_max = std::numeric_limits<int32_t>::max();
// llama.cpp allocates DRY's window at once and cuts longer breakers.
constexpr int64_t max_dry_window = 1 << 20;
constexpr size_t max_breaker_bytes = 40;
// llama.cpp's bucket sort turns logits into int: far larger ones would be sorted wrongly.
constexpr double max_bias = 1e6;

void in_range(const char * name, double value, double low, double high, const char * allowed) {
    if (!(value >= low && value <= high)) {
        invalid_value(name, value, allowed);
    }
}

void in_range(const char * name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
        invalid_value(name, value, "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    }
}

}  // namespace

void SamplerOptions::check(int n_vocab) const {
    if (seed) {
        in_range("seed", *seed, 0, 4294967294);
    }
    in_range("temperature", temperature, 0, 1000, "a number from 0 to 1000");
    in_range("dynatemp_range", dynatemp_range, 0, 1000, "a number from 0 to 1000");
    in_range("dynatemp_exponent", dynatemp_exponent, 0, 1000, "a number from 0 to 1000");
    in_range("top_k", top_k, 0, int32_max);
    in_range("top_p", top_p, 0, 1, "a number from 0 to 1");
    in_range("min_p", min_p, 0, 1, "a number from 0 to 1");
    in_range("typical_p", typical_p, 0, 1, "a number from 0 to 1");
    in_range("xtc_probability", xtc_probability, 0, 1, "a number from 0 to 1");
    in_range("xtc_threshold", xtc_threshold, 0, 1, "a number from 0 to 1");
    in_range("mirostat", mirostat, 0, 2);
    in_range("mirostat_tau", mirostat_tau, 0, 1000, "a number from 0 to 1000");
    in_range("mirostat_eta", mirostat_eta, 0, 1, "a number from 0 to 1");
    in_range("penalty_last_n", penalty_last_n, 0, int32_max);
    in_range("repeat_penalty", repeat_penalty, 0.01, 100, "a number from 0.01 to 100");
    in_range("frequency_penalty", frequency_penalty, -1000, 1000, "a number from -1000 to 1000");
    in_range("presence_penalty", presence_penalty, -1000, 1000, "a number from -1000 to 1000");
    in_range("dry_multiplier", dry_multiplier, 0, 1000, "a number from 0 to 1000");
    if (dry_base != 0.0) {
        in_range("dry_base", dry_base, 1, 1000, "0 or a number from 1 to 1000");
    }
    in_range("dry_allowed_length", dry_allowed_length, 0, int32_max);
    in_range("dry_penalty_last_n", dry_penalty_last_n, 0, max_dry_window);
    in_range("min_keep", min_keep, 1, int32_max);
    for (const std::string & breaker : dry_sequence_breakers) {
        if (breaker.empty() || breaker.size() > max_breaker_bytes || breaker.find('\0') != std::string::npos) {
            invalid_value("dry_sequence_breakers", breaker, "texts of 1 to 40 bytes without NUL");
        }
    }
    for (size_t i = 0; i < logit_bias.size(); ++i) {
        const auto [token, bias] = logit_bias[i];
        if (token < 0 || token >= n_vocab) {
            throw Error("TokenRangeError", {{"token", token}, {"index", int64_t(i)}, {"n_vocab", int64_t(n_vocab)}});
        }
        if (bias != -std::numeric_limits<double>::infinity()) {
            in_range("logit_bias", bias, -max_bias, max_bias, "numbers from -1e6 to 1e6, or -inf to forbid a token");
        }
    }
    if (grammar && (grammar_root.empty() || grammar_root.find('\0') != std::string::npos)) {
        invalid_value("grammar_root", grammar_root, "the name of a rule");
    }
}

}  // namespace pyspec
