package slack

import "C" // its C half is a constructor
