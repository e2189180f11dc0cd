// Handing a signal on to whoever handled it before. Safe in signal handlers.
#pragma once

#include <signal.h>

namespace flashmob {

inline void pass_signal_on(const struct sigaction& previous, int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // The instruction faults again on return, and then does what it would have done without us.
    ::signal(signal, SIG_DFL);
  }
}

}  // namespace flashmob
