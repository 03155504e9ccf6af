// Does not compile with clang's -Werror=thread-safety: the part `thread-safety` of scripts/test.sh expects that.
#include "base/mutex.h"

namespace kvc {

class Unlocked {
 public:
  int get() { return value_; }  // without mutex_

 private:
  Mutex mutex_;
  int value_ KVC_GUARDED_BY(mutex_) = 0;
};

int use(Unlocked& unlocked) { return unlocked.get(); }

}  // namespace kvc
