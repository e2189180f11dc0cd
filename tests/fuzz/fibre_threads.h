// The threads that a fuzz target's code starts, as fibres of the one thread that there is: which of them goes on, and
// when, is the input's choice, and no input waits for a core. The linker sends std::thread, std::condition_variable and
// the clock of their waits through fibre_threads.cpp (--wrap, see CMakeLists.txt).
//
// A fibre runs until it waits for a condition. It may hold no other mutex then than the one that it waits with.
#pragma once

namespace flashmob::fuzz {

// From here on threads are fibres.
void keep_threads_here();

// Lets each fibre go on that has been told of what it waits for, until it waits again; with `pass_time` also those
// whose wait ends by itself, for which the steady clock moves on. False if there was none.
bool run_threads(bool pass_time);

}  // namespace flashmob::fuzz
