// Text that somebody else wrote: is it UTF-8, and how is it shown where it is not; and sizes in messages. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashmob {

// UTF-8 without control characters.
bool is_plain_text(std::string_view text);

// The text as plain text: bytes that are not UTF-8, and those of control characters, become "\xNN".
std::string printable(std::string_view text);

// Such as "1.5 GiB" or "64.0 TiB".
std::string bytes_in_words(std::uint64_t bytes);

}  // namespace flashmob
