/* Opens a plug-in with RTLD_DEEPBIND and has it allocate. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    (void)count;
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    int (*allocate)(size_t) = (int (*)(size_t))dlsym(plugin, "plugin_allocate");
    printf("%d\n", allocate(strtoull(arguments[2], NULL, 10)));
}
