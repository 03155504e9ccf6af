// The other process of a test, which runs peer.cc.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "two_processes.h"

namespace kvt {

struct Peer {
  pid_t process = 0;
  int in = -1, out = -1, moved = -1;

  Peer(const char *mode, const char *way, int tokens) {
    int to[2], from[2], ticks[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC) + pipe2(from, O_CLOEXEC) + pipe2(ticks, O_CLOEXEC), 0);
    process = fork();
    if (process == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      dup2(ticks[1], STDERR_FILENO);
      execl(KVC_PEER, "peer", mode, way, std::to_string(tokens).c_str(), nullptr);
      _exit(9);
    }
    close(to[0]);
    close(from[1]);
    close(ticks[1]);
    in = to[1], out = from[0], moved = ticks[0];
  }
  ~Peer() {
    if (process > 0) end(SIGKILL);
    close(in);
    close(out);
    close(moved);
  }
  // Waits until something was sent or received.
  bool wait_moved() {
    char tick = 0;
    return read_all(moved, &tick, 1);
  }
  // For the messages of failed tests: how the process has ended, and what it has written.
  std::string state() {
    std::string text = "\nthe other process ";
    int status = 0;
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == process) process = 0;
    if (ended == 0) text += "runs";
    if (ended > 0) text += WIFEXITED(status) ? "exited with " : "was ended by signal ";
    if (ended > 0) text += std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    for (const int file : {out, moved}) {
      fcntl(file, F_SETFL, O_NONBLOCK);
      char bytes[4096];
      const ssize_t count = read(file, bytes, sizeof bytes);
      if (count > 0) text += "\n" + std::string(bytes, static_cast<size_t>(count));
    }
    return text;
  }
  int end(int signal = 0) {
    if (signal != 0) kill(process, signal);
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    process = 0;
    return status;
  }
};

}  // namespace kvt
