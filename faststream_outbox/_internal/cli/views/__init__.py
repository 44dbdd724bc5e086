"""What commands have found, as blocks to be printed. Pure; one file for each subject."""
