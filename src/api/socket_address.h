// Network addresses as people write them: "127.0.0.1:4420", "[::1]:4420". Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace flashmob::api {

struct SocketAddress {
  std::string host;  // without brackets
  std::uint16_t port = 0;
};

// Throws ConfigError.
SocketAddress parse_socket_address(const std::string& text);
std::string text_of(const SocketAddress& address);

}  // namespace flashmob::api
