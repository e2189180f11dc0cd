#include "api/socket_address.h"

#include <charconv>
#include <system_error>

#include "flashmob/error.h"

namespace flashmob::api {

SocketAddress parse_socket_address(const std::string& text) {
  const auto wrong = [&]() -> ConfigError {
    return ConfigError("tcp address \"" + text +
                       "\" is not possible: write ADDRESS:PORT such as 127.0.0.1:4420 or "
                       "[::1]:4420");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw wrong();
  SocketAddress address{text.substr(0, colon), 0};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end || colon + 1 == text.size()) throw wrong();
  if (address.host.front() == '[') {
    if (address.host.size() < 3 || address.host.back() != ']') throw wrong();
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (address.host.find(':') != std::string::npos) {
    throw wrong();
  }
  return address;
}

std::string text_of(const SocketAddress& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace flashmob::api
