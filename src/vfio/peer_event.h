// Eventfds that belong to a peer as much as to us: whether an operation on one may wait is a flag of the file, which
// the peer can change at any moment. So neither of these asks the file.
//
// Any thread.
#pragma once

#include <cstdint>

namespace flashmob::vfio {

// Before any signal_event(): what that needs is then there, whatever runs out later. Throws ConfigError.
void prepare_events();

// Adds one to the eventfd's counter, or leaves a full one as it is. Never waits.
void signal_event(int fd);

// Takes the eventfd's counter, which becomes 0. False if it is 0. Never waits.
bool take_event(int fd, std::uint64_t& count);

}  // namespace flashmob::vfio
