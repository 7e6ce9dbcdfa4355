berth plan collide.csv
