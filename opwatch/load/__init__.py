"""What a drive is loaded with: workloads as data, and the words that make fio do them."""
