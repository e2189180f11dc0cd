// Socket pairs in this process's own memory: what the fuzz targets' clients and servers say to each other takes a
// microsecond and a half for each message on its way through the kernel. The linker sends what is done with sockets
// through socket_pairs.cpp (--wrap, see CMakeLists.txt); sockets that were made in another way, and whatever else is
// asked of these, are the kernel's.
//
// They are stream sockets as unix(7) has them: partial sends where the buffer is small, descriptors that end a read,
// EPIPE, ECONNRESET, half-closed ends, level-triggered epoll. They never block. One thread.
#pragma once

namespace flashmob::fuzz {

// From here on socketpair() makes them.
void keep_sockets_here();

}  // namespace flashmob::fuzz
