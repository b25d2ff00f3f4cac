-- Figures are counted by tenant, so that the labels of metrics can be bounded for each: duly.count_ended_v2 and duly.coming_v2.
drop function if exists duly.count_ended_v1, duly.coming_v1;
