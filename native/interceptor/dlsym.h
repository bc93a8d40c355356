/* Interposed dlsym, dlvsym, dlopen and dlmopen; what the rest of the library may ask of them. */
#ifndef HCS_DLSYM_H
#define HCS_DLSYM_H

/* The next definition of name after this library in the global scope, or NULL. */
void *hcs_next_after_us(const char *name);

#endif
