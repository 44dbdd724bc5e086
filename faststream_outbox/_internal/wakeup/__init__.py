"""Wake-ups: telling workers that there may be something to claim. Only ever a hint."""
