/* Prints its effective user id. In the image it is owned by root and set-user-ID,
 * so the answer is 0 unless no_new_privs is set (prctl(2)). */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	printf("Effective uid: %d\n", (int)geteuid());
	return 0;
}
