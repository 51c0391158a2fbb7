/* Loads a library, lets it work on its threads, and unloads it, 100 times. The program links nothing that the library
 * needs, so that only the library itself keeps its code in memory. Prints the number of threads at the end. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

static int threads(void) {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == NULL) return -1;
  int count = 0;
  for (const struct dirent* task = readdir(tasks); task != NULL; task = readdir(tasks)) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static int use_once(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  int (*use)(void) = NULL;
  *(void**)&use = dlsym(library, "use_evenorm");
  const int status = use == NULL ? 4 : use();
  return dlclose(library) != 0 ? 5 : status;
}

int main(int argc, char** argv) {
  if (argc != 2) return 6;
  for (int i = 0; i < 100; ++i) {
    const int status = use_once(argv[1]);
    if (status != 0) return status;
    /* Sometimes waits until the threads fall asleep, so that the next round must wake them. */
    if (i % 10 == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  printf("%d threads\n", threads());
  return 0;
}
