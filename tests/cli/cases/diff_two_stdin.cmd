berth diff - -
