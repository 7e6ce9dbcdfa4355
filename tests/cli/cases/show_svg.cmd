berth show everything.csv -o plan.svg && cat plan.svg
berth show small.csv -o - | tail -1
berth show small.csv -o /nowhere/plan.svg
