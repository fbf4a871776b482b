// Threads of this layer block all signals: these are the business of the program that embeds tutti.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>

#include "tutti/status.hpp"

namespace tutti::bootstrap {

/// Throws Error{system}.
template <class Function>
std::thread thread_without_signals(Function function) {
  sigset_t all;
  sigset_t previous;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    std::thread thread(function);
    ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    return thread;
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    throw Error(ErrorCode::system, std::string("cannot start a thread: ") + error.what(),
                error.code().value());
  }
}

}  // namespace tutti::bootstrap
