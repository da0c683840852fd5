// A sequence's tokens and state as a file: magic, number of tokens, tokens, their digest, then State::to_bytes().
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#ifdef _WIN32
#include <process.h>
#else
#include <unistd.h>
#endif

#include "digest.hpp"
#include "errors.hpp"
#include "state.hpp"

namespace pyspec {

namespace {

constexpr char magic[8] = {'p', 'y', 's', 'p', 'e', 'c', 'F', '1'};

struct Closer {
    void operator()(std::FILE * file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

[[noreturn]] void file_error(const std::string & what, const std::string & path, int code) {
    state_error(what + " " + path + ": " + std::strerror(code));
}

void write_all(std::FILE * file, const void * data, size_t n_bytes, const std::string & path) {
    if (std::fwrite(data, 1, n_bytes, file) != n_bytes) {
        file_error("cannot write", path, errno);
    }
}

std::string read_whole(const std::string & path) {
    const File file(std::fopen(path.c_str(), "rb"));
    if (!file) {
        file_error("cannot open", path, errno);
    }
    std::string bytes;
    std::string chunk(size_t{1} << 20, '\0');
    while (true) {
        const size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get());
        bytes.append(chunk, 0, n);
        if (n < chunk.size()) {
            break;
        }
    }
    if (std::ferror(file.get()) != 0) {
        file_error("cannot read", path, errno);
    }
    return bytes;
}

[[noreturn]] void truncated(size_t n_bytes, uint64_t expected) {
    throw Error("StateSizeError",
                {{"n_bytes", static_cast<int64_t>(n_bytes)}, {"expected_bytes", static_cast<int64_t>(expected)}});
}

}  // namespace

size_t write_state_file(const std::string & path, const State & state, const std::vector<llama_token> & tokens) {
    const std::string bytes = state.to_bytes();
    const uint64_t n_tokens = tokens.size();
    const size_t n_token_bytes = tokens.size() * sizeof(llama_token);
    const uint64_t checksum = digest(tokens.data(), n_token_bytes, n_tokens);
#ifdef _WIN32
    const std::string beside = path + ".part" + std::to_string(_getpid());
#else
    const std::string beside = path + ".part" + std::to_string(getpid());
#endif
    try {
        File file(std::fopen(beside.c_str(), "wb"));
        if (!file) {
            file_error("cannot create", beside, errno);
        }
        write_all(file.get(), magic, sizeof(magic), beside);
        write_all(file.get(), &n_tokens, sizeof(n_tokens), beside);
        write_all(file.get(), tokens.data(), n_token_bytes, beside);
        write_all(file.get(), &checksum, sizeof(checksum), beside);
        write_all(file.get(), bytes.data(), bytes.size(), beside);
        if (std::fclose(file.release()) != 0) {
            file_error("cannot write", beside, errno);
        }
#ifdef _WIN32
        std::remove(path.c_str());
#endif
        if (std::rename(beside.c_str(), path.c_str()) != 0) {
            file_error("cannot replace", path, errno);
        }
    } catch (...) {
        std::remove(beside.c_str());
        throw;
    }
    return sizeof(magic) + sizeof(n_tokens) + n_token_bytes + sizeof(checksum) + bytes.size();
}

std::shared_ptr<State> read_state_file(const std::string & path, std::vector<llama_token> & tokens) {
    const std::string bytes = read_whole(path);
    const size_t n_known = std::min(bytes.size(), sizeof(magic));
    if (n_known == 0 || std::memcmp(bytes.data(), magic, n_known) != 0) {
        state_error(path + " is not a file written by state_save_file");
    }
    uint64_t n_tokens = 0;
    uint64_t checksum = 0;
    size_t at = sizeof(magic);
    if (bytes.size() < at + sizeof(n_tokens) + sizeof(checksum)) {
        truncated(bytes.size(), at + sizeof(n_tokens) + sizeof(checksum));
    }
    std::memcpy(&n_tokens, bytes.data() + at, sizeof(n_tokens));
    at += sizeof(n_tokens);
    if (n_tokens > (bytes.size() - at - sizeof(checksum)) / sizeof(llama_token)) {
        truncated(bytes.size(), at + sizeof(checksum) + n_tokens * sizeof(llama_token));
    }
    tokens.resize(n_tokens);
    std::memcpy(tokens.data(), bytes.data() + at, n_tokens * sizeof(llama_token));
    at += n_tokens * sizeof(llama_token);
    std::memcpy(&checksum, bytes.data() + at, sizeof(checksum));
    at += sizeof(checksum);
    if (checksum != digest(tokens.data(), n_tokens * sizeof(llama_token), n_tokens)) {
        state_error("the tokens in " + path + " are damaged");
    }
    return State::from_bytes(bytes.data() + at, bytes.size() - at);
}

}  // namespace pyspec
