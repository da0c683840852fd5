#include "log.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "llama.h"

namespace pyspec {

namespace {

// A failing process can log without end; the newest lines are the ones that explain.
constexpr size_t max_lines = 10000;

// Leaked on purpose: threads of ggml may still log while the interpreter's statics are being destroyed.
struct Queue {
    std::mutex mutex;
    std::deque<LogLine> lines;
};

Queue & queue() {
    static auto * instance = new Queue;
    return *instance;
}

std::atomic<int> threshold{LOG_WARNING};
std::atomic<bool> pending{false};

// Text of a line that has not ended yet, one per thread, so that threads do not mix their words.
struct Partial {
    int level = LOG_INFO;
    std::string text;
};

thread_local Partial partial;
thread_local LogCapture * capture = nullptr;

int level_of(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_DEBUG:
            return LOG_DEBUG;
        case GGML_LOG_LEVEL_WARN:
            return LOG_WARNING;
        case GGML_LOG_LEVEL_ERROR:
            return LOG_ERROR;
        default:
            return LOG_INFO;
    }
}

// Warnings of what pyspec does on purpose: without flash attention (pyspec/flash_attention.py) layers of different
// sizes, of which those of hybrids without attention hold nothing, have rows of values of one size.
bool is_on_purpose(const std::string & line) {
    return line.find("FA is not enabled - padding V cache") != std::string::npos;
}

void finish(int level, const std::string & line) {
    if (line.empty()) {
        return;
    }
    if (level == LOG_WARNING && is_on_purpose(line)) {
        level = LOG_INFO;
    }
    if (capture != nullptr && level >= LOG_WARNING) {
        capture->add(level, line);
    }
    if (level < threshold.load(std::memory_order_relaxed)) {
        return;
    }
    Queue & target = queue();
    const std::lock_guard<std::mutex> lock(target.mutex);
    if (target.lines.size() >= max_lines) {
        target.lines.pop_front();
    }
    target.lines.push_back({level, line});
    pending.store(true, std::memory_order_release);
}

void on_log(ggml_log_level level, const char * text, void * /* user_data */) {
    try {
        if (level != GGML_LOG_LEVEL_CONT) {
            if (!partial.text.empty()) {
                finish(partial.level, partial.text);
                partial.text.clear();
            }
            partial.level = level_of(level);
        }
        std::string & line = partial.text;
        for (const char * c = text; *c != '\0'; ++c) {
            if (*c == '\n') {
                finish(partial.level, line);
                line.clear();
            } else if (*c != '\r') {
                line.push_back(*c);
            }
        }
    } catch (const std::exception &) {
        // Losing a message is better than unwinding through C code.
    }
}

std::string without_function_name(const std::string & line) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && line.find(' ') > colon) {
        return line.substr(colon + 2);
    }
    return line;
}

}  // namespace

void install_log() {
    llama_log_set(on_log, nullptr);
}

void set_log_level(int level) {
    threshold.store(level, std::memory_order_relaxed);
}

bool log_pending() {
    return pending.load(std::memory_order_acquire);
}

std::vector<LogLine> take_log() {
    Queue & source = queue();
    const std::lock_guard<std::mutex> lock(source.mutex);
    std::vector<LogLine> lines(source.lines.begin(), source.lines.end());
    source.lines.clear();
    pending.store(false, std::memory_order_release);
    return lines;
}

LogCapture::LogCapture() : outer_(capture) {
    capture = this;
}

LogCapture::~LogCapture() {
    capture = outer_;
}

void LogCapture::add(int level, const std::string & line) {
    lines_.push_back({level, line});
}

std::string LogCapture::reason(const std::string & fallback) const {
    std::string text;
    for (const int wanted : {LOG_ERROR, LOG_WARNING}) {
        for (const LogLine & line : lines_) {
            const std::string words = without_function_name(line.text);
            if (line.level == wanted && text.find(words) == std::string::npos) {
                text += (text.empty() ? "" : "; ") + words;
            }
        }
        if (!text.empty()) {
            return text;
        }
    }
    return fallback;
}

}  // namespace pyspec
