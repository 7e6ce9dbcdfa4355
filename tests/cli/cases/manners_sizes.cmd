berth plan small.csv -q --capacity 1.5M --align 1K --minimize; echo $?
berth plan small.csv -q --capacity 1.5X
