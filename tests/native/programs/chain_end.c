/* The end of the chain. */
int plain_value(void)
{
    return 7;
}
