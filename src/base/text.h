// Text that somebody else wrote: is it UTF-8, and how is it shown where it is not. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace flashmob {

// UTF-8 without control characters.
bool is_plain_text(std::string_view text);

// The text as plain text: bytes that are not UTF-8, and those of control characters, become "\xNN".
std::string printable(std::string_view text);

}  // namespace flashmob
