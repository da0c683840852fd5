// llama.cpp's messages, collected from any thread and handed out as whole lines.
// Owns the queue and the capture of one thread's messages while a native call runs; giving them to Python's logging
// is bind_log.cpp. The callback never touches Python, because the thread that logs may hold other locks.
#pragma once

#include <string>
#include <vector>

namespace pyspec {

// Numbers of Python's logging.
enum LogLevel : int { LOG_DEBUG = 10, LOG_INFO = 20, LOG_WARNING = 30, LOG_ERROR = 40 };

struct LogLine {
    int level;
    std::string text;
};

// Route llama.cpp's and ggml's messages here; once, at import.
void install_log();
// Messages below this level are dropped when they are written.
void set_log_level(int level);
// True when take_log() would return something; cheap, without a lock.
bool log_pending();
// The finished lines so far, oldest first.
std::vector<LogLine> take_log();

// Collects this thread's warnings and errors while it lives, whatever the level set.
class LogCapture {
public:
    LogCapture();
    ~LogCapture();
    LogCapture(const LogCapture &) = delete;
    LogCapture & operator=(const LogCapture &) = delete;

    // The errors (else the warnings) without llama.cpp's function names, joined with "; "; `fallback` when none.
    std::string reason(const std::string & fallback) const;

    void add(int level, const std::string & line);

private:
    LogCapture * outer_;
    std::vector<LogLine> lines_;
};

}  // namespace pyspec
